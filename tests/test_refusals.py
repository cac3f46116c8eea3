"""Refusals of invalid runs and sweeps before training, in one line, with the nearest valid name."""

from pathlib import Path

import pytest
from command_line import command
from own_process import say

SMALL = ["model=mlp", "model.hidden=[16]", "workers=4", "trainer.steps=5", "trainer.batch_size=8"]
SMALL += ["compressor=top_k", "tracker=none"]
NO_SETTING = "there is no such setting; did you mean"
SHARED = "compressor.shared=false"
REFUSED = {  # words: the end of the line, or a part of it
    "compresor=top_k": f"Could not override 'compresor': {NO_SETTING} compressor?",
    "lr=0.1": f"Could not override 'lr': {NO_SETTING} optimizer.lr?",
    "lambda=0.1 compressor=hard_threshold": f"Could not override 'lambda': {NO_SETTING} "
    "budget.threshold or compressor.threshold?",
    "trainer.epoch=3": f"Could not override 'trainer.epoch': {NO_SETTING} trainer.epochs?",
    "compressor=topk": "Could not find 'compressor/topk'; did you mean compressor=top_k? There are",
    "feedback=false": "none, got false; did you mean feedback=none?",
    "local.outer.lr=1": "this choice of local has no settings; --help lists the others",
    "data.root=x": "Could not override 'data.root': digits reads no files",
    "hydra/sweeper=optuna": "Could not find 'hydra/sweeper/optuna': There are basic",
    "+sweeps=smoke seed=0": "this is a sweep over compressor: put -m first, or type one value each",
    "-m +sweeps=wandb/lambda": "sweeps/wandb/lambda is for the agents of Weights & Biases: use wandb sweep",
    f"-m compressor=random_k,none {SHARED}": "compressor.shared has no effect with any of the compressors",
    f"-m {SHARED} seed=0,1": "Could not override 'compressor.shared'",
    f"+sweeps=smoke compressor=random_k {SHARED}": "Could not override 'compressor.shared'",
    "-m data=digits,mnist data.rot=DIR": "; job 1 of 2: ",
    "-m data=mnist,digits data.root=DIR hydra.sweeper.max_batch_size=1": "; job 2 of 2: ",
    "-m model=resnet20,lstm data.root=DIR": "Could not override 'data.root'",
    "-m data=mnist,cifar10 model.rot=DIR": "Could not override 'model.rot'",
    "-m output=/proc/nothing seed=0,1": "/proc/nothing",
    "compressor=null": "compressor",
    "output=${oc.env:NOT_THERE}": "NOT_THERE",
    "compressor=top_k compressor.threshold=1": "no effect with this compressor, which has no threshold",
    "feedback=none feedback.scale=step": "feedback.scale has no effect with feedback=none",
    "data=synthetic_ratings data.drop_last=true": "Could not override 'data.drop_last': there is no",
    "budget.density=0": "TopK.density must be in (0, 1], got 0",
    "compressor=hard_threshold compressor.threshold=-1": "threshold must be a finite number >= 0, got -1",
    "compressor=hard_threshold compressor.follows=rate": "threshold must be given with follows=rate",
    "compressor=hard_threshold compressor.follows=lr": "follows must be 'rate' or null, got 'lr'",
    "compressor=hard_threshold compressor.threshold=1 budget.density=0.1": "budget.density has no effect",
    "compressor=none budget.density=0.1": "budget.density has no effect",
    "compressor=cocktail budget.density=0.5": "budget.density has no effect with this compressor: set "
    "compressor.first.density or compressor.second.first.density",
    "compressor=none feedback.scale=step": "feedback.scale has no effect",
    "processes=3": "workers must be a multiple of processes (3), got 4",
    "workers=5000": "workers must be at most the number of training samples (1438), got 5000",
    "timeout_seconds=0": "timeout_seconds must be in (0, 1e6], got 0",
    "trainer.nonfinite=ignore": "trainer.nonfinite must be one of stop, skip, got 'ignore'",
    "seed=-1": "seed must be an integer >= 0, got -1",
    "optimizer.momentum=0": "optimizer.nesterov needs optimizer.momentum > 0",
    "data=mnist data.root=/nowhere": "data=mnist: no file /nowhere/MNIST/raw/train-images-idx3-ubyte",
    "device=cuda": "device=cuda: torch finds no CUDA device",
    "name=../x": "name must be the name of one folder, got '../x'",
    "output=null": "output must be a path, got None",
    "optimizer=decay_momentum_sgd": "optimizer.decay_momentum needs feedback=momentum_correction",
    "optimizer.nesterov=release optimizer.momentum=0": "optimizer.nesterov needs optimizer.momentum > 0",
    "tracker=wandb tracker.project=a/b/c": "tracker.project must be NAME or ENTITY/NAME, got 'a/b/c'",
    "tracker=wandb tracker.project=a/b tracker.entity=c": "tracker.project=a/b names another entity",
    "tracker=[none,wandb]": "tracker=none cannot be combined with other trackers, got wandb",
    "tracker=wandb tracker.destinations.wandb=yes": "tracker.destinations must map any of wandb, ",
    "tracker=wandb tracker.objective=accuracy": "tracker.objective must be a metric with a goal, SPLIT/NAME",
    "tracker=wandb tracker.byte_budget=5": "tracker.byte_budget has no effect without tracker.objective",
    "tracker=wandb tracker.checkpoints=true": "tracker.checkpoints=true has no effect without checkpoint",
    "device=tpu": "device must be auto, cpu or cuda, got 'tpu'",
    "wire.indices=zip": "wire.indices must be one of plain, auto, bitmap, rice, got 'zip'",
    "compressor=none wire.values=bf16": "wire.values must be fp32 with NoCompression, got 'bf16'",
    "compressor=random_k wire.indices=auto": "wire.indices=auto has no effect with RandomK",
    "feedback.scale=both": "ErrorFeedback.scale must be 'gradient' or 'step', got 'both'",
    "budget.threshold=0.1": "budget.threshold has no effect with this compressor, which has no threshold",
    "model=logistic_l2": "logistic_l2 cannot be trained on the data of digits; data must be one of least_s",
    "model=lstm": "digits; data must be one of penn_treebank, python_docs, text, wikitext2",
    "model=neumf": "neumf cannot be trained on the data of digits; data must be one of movielens, synth",
    "model=bert": "bert cannot be trained on the data of digits; data must be one of sst2",
    "model=mlp data=image_folder": "data.name must be given, as data.name=VALUE",
    "data=synthetic_ratings": "data must be one of breast_cancer, cifar10, cifar100, digits, fashion_mnist",
    "optimizer.lr=null": "optimizer.lr must be > 0: this model has no step size of its own, got None",
    "data.alpha=0.5": "data.alpha has no effect with data.partition=iid",
    "data.partition=dirichlet": "data.alpha must be in [1e-6, 1e6] for data.partition=dirichlet",
    "data.partition=x": "data.partition must be one of iid, contiguous, by_label, dirichlet, got 'x'",
    "data.reshard=epoch data.partition=by_label": "data.reshard=epoch needs data.partition=iid, got 'by_l",
    "data.reshard=epoch trainer.batch_size=null": "data.reshard=epoch cannot be combined with trainer.batch",
    "data.drop_last=true trainer.batch_size=null": "data.drop_last cannot be combined with trainer.batch",
    "model=lstm data=python_docs +data.reshard=epoch": "data.reshard has no effect with data.objective=next",
    "model=neumf data=synthetic_ratings +data.reshard=epoch": "data.reshard has no effect: data.ratings.synt",
    "trainer.batch_size=1000": "trainer.batch_size must be at most the",
    "trainer.epochs=3": "trainer.epochs has no effect together with trainer.steps",
    "schedule=autolrs optimizer.lr=0.1": "optimizer.lr has no effect with schedule=autolrs, which searches",
    "trainer.bucket_megabytes=1": "trainer.bucket_megabytes has no effect without compressor=none",
    "schedule=linear schedule.warmup_epochs=1 schedule.warmup_share=0.3": "warmup_share has no effect",
    "schedule=warmup_step schedule.warmup_epochs=5": "warmup_epochs has no effect with schedule.peak=1",
    "schedule=warmup_step schedule.decay=0.5": "schedule.decay has no effect without schedule.milestones",
    "trainer.channels_last=true": "trainer.channels_last has no effect on a model without convolutions",
    "data=libsvm model=logistic_l2 trainer.evaluate_every=2": "evaluate_every has no effect with this data",
    "model=resnet18 data=breast_cancer": "model=resnet18 needs images",
    "model=resnet18 trainer.batch_size=1": "trainer.batch_size must be at least 2 for a model with BatchNorm",
    "model=resnet18 workers=8 trainer.batch_size=null data.partition=dirichlet +data.alpha=0.001": (
        "a model with BatchNorm needs at least 2 samples in each worker's data, got 1"
    ),
    "output=/proc/nothing": "/proc/nothing",
    "model=least_squares data=least_squares trainer.precision=bf16": "trainer.precision has no effect on a",
    "isolate=false": "isolate has no effect without -m",
}


# One of each group of settings; all of them are slow
QUICK = {words.replace("+", "").split("=")[0].split(".")[0]: words for words in reversed(REFUSED)}.values()


@pytest.mark.parametrize(
    "overrides", [pytest.param(words, marks=[] if words in QUICK else pytest.mark.slow) for words in REFUSED]
)
def test_refusals(
    overrides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """A refusal is one line before training, and leaves no metrics.jsonl."""
    typed = overrides.split()
    keys = {text.split("=")[0] for text in typed}
    keys |= {"model.hidden"} if "model" in keys else {"compressor"} if "+sweeps" in keys else set()
    small = [text for text in (*SMALL, f"output={tmp_path}") if text.split("=")[0] not in keys]
    status, said = say(monkeypatch, capfd, *small, *typed)
    assert status == 1 and said.startswith("error: ") and said.count("\n") == 1, said
    assert REFUSED[overrides] in said
    assert not list(tmp_path.glob("*/*/metrics.jsonl"))


@pytest.mark.parametrize(
    "bad",
    [
        "output=/proc/nothing",
        pytest.param("data=mnist data.root=/nowhere", marks=pytest.mark.slow),
        pytest.param("device=cuda", marks=pytest.mark.slow),
    ],
)
def test_several_processes_refuse_in_one_line(bad: str, tmp_path: Path) -> None:
    """Also for an error of the first process only: an output folder that cannot be written."""
    result = command(*SMALL, "processes=2", f"output={tmp_path}", *bad.split())
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
