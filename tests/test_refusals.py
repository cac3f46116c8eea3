"""Refusals of invalid runs before training, in one line."""

import sys
from pathlib import Path

import pytest
from command_line import command

import run

SMALL = ["model=mlp", "model.hidden=[16]", "workers=4", "trainer.steps=5", "trainer.batch_size=8"]
REFUSED = {
    "budget.density=0": "TopK.density must be in (0, 1], got 0",
    "budget.density=1.5": "TopK.density must be in (0, 1], got 1.5",
    "budget.density=abc": "TopK.density must be in (0, 1], got 'abc'",
    "compressor=hard_threshold compressor.threshold=-1": "threshold must be a finite number >= 0, got -1",
    "compressor=hard_threshold compressor.threshold=nan": "threshold must be a finite number >= 0, got nan",
    "compressor=hard_threshold compressor.threshold=1 budget.density=0.1": "budget.density has no effect",
    "compressor=none budget.density=0.1": "budget.density has no effect",
    "compressor=cocktail budget.density=0.5": "budget.density has no effect with this compressor: set "
    "compressor.first.density or compressor.second.first.density",
    "compressor=none feedback.scale=step": "feedback.scale has no effect",
    "processes=3": "workers must be a multiple of processes (3), got 4",
    "workers=5000": "workers must be at most the number of training samples (1438), got 5000",
    "timeout_seconds=0": "timeout_seconds must be in (0, 1e6], got 0",
    "timeout_seconds=inf": "timeout_seconds must be in (0, 1e6], got inf",
    "trainer.nonfinite=ignore": "trainer.nonfinite must be one of stop, skip, got 'ignore'",
    "workers=0": "workers must be an integer >= 1, got 0",
    "workers=a": "workers must be an integer >= 1, got 'a'",
    "seed=-1": "seed must be an integer >= 0, got -1",
    "optimizer.momentum=0": "optimizer.nesterov needs optimizer.momentum > 0",
    "optimizer.lr=nan": "optimizer.lr must be a finite number >= 0, got nan",
    "data=mnist data.root=/nowhere": "data=mnist: no file /nowhere/MNIST/raw/train-images-idx3-ubyte",
    "device=cuda": "device=cuda: torch finds no CUDA device",
    "threads=100000": "threads must be at most 1024, got 100000",
    "name=../x": "name must be the name of one folder, got '../x'",
    "output=null": "output must be a path, got None",
    "optimizer=decay_momentum_sgd": "optimizer.decay_momentum needs feedback=momentum_correction",
    "optimizer.momentum=2": "optimizer.momentum must be in [0, 1), got 2",
    "optimizer.nesterov=no": "optimizer.nesterov must be true, false or release, got 'no'",
    "optimizer.nesterov=release optimizer.momentum=0": "optimizer.nesterov needs optimizer.momentum > 0",
    "tracker=wandb tracker.project=a/b/c": "tracker.project must be NAME or ENTITY/NAME, got 'a/b/c'",
    "tracker=wandb tracker.project=a/b tracker.entity=c": "tracker.project=a/b names another entity",
    "tracker=wandb tracker.tags=5": "tracker.tags must be a list of words, got 5",
    "tracker=[none,wandb]": "tracker=none cannot be combined with other trackers, got wandb",
    "tracker=wandb tracker.destinations.wandb=yes": "tracker.destinations must map any of wandb, ",
    "tracker=wandb tracker.objective=accuracy": "tracker.objective must be a metric with a goal, SPLIT/NAME",
    "tracker=wandb tracker.byte_budget=5": "tracker.byte_budget has no effect without tracker.objective",
    "tracker=wandb tracker.objective=test/loss tracker.byte_budget=-1": "tracker.byte_budget must be > 0",
    "tracker=wandb tracker.checkpoints=1": "tracker.checkpoints must be true or false, got 1",
    "tracker=wandb tracker.checkpoints=true": "tracker.checkpoints=true has no effect without checkpoint",
    "device=tpu": "device must be auto, cpu or cuda, got 'tpu'",
    "kernels=fast": "kernels must be auto or reference, got 'fast'",
    "wire.indices=zip": "wire.indices must be one of plain, auto, bitmap, rice, got 'zip'",
    "wire.values=fp8": "wire.values must be one of fp32, bf16, fp16, int8, int4, int2, got 'fp8'",
    "compressor=none wire.values=bf16": "wire.values must be fp32 with NoCompression, got 'bf16'",
    "compressor=random_k wire.indices=auto": "wire.indices=auto has no effect with RandomK",
    "scope=both": "scope must be layer or global, got 'both'",
    "feedback.scale=both": "ErrorFeedback.scale must be 'gradient' or 'step', got 'both'",
    "budget.threshold=0.1": "budget.threshold has no effect with this compressor, which has no threshold",
    "model=logistic_l2": "logistic_l2 cannot be trained on the data of digits; data must be one of least_s",
    "model=lstm": "digits; data must be one of penn_treebank, python_docs, wikitext2",
    "model=neumf": "neumf cannot be trained on the data of digits; data must be one of movielens, synth",
    "model=bert": "bert cannot be trained on the data of digits; data must be one of sst2",
    "model=mlp data=image_folder": "data.name must be given, as data.name=VALUE",
    "data=synthetic_ratings": "data must be one of breast_cancer, cifar10, cifar100, digits, fashion_mnist",
    "optimizer.lr=null": "optimizer.lr must be > 0: this model has no step size of its own, got None",
    "data.alpha=0.5": "data.alpha has no effect with data.partition=iid",
    "data.partition=dirichlet": "data.alpha must be in [1e-6, 1e6] for data.partition=dirichlet",
    "data.partition=x": "data.partition must be one of iid, contiguous, by_label, dirichlet, got 'x'",
    "data.reshard=x": "data.reshard must be one of never, epoch, got 'x'",
    "data.reshard=epoch data.partition=by_label": "data.reshard=epoch needs data.partition=iid, got 'by_l",
    "data.reshard=epoch trainer.batch_size=null": "data.reshard=epoch cannot be combined with trainer.batch",
    "data.drop_last=true trainer.batch_size=null": "data.drop_last cannot be combined with trainer.batch",
    "data.drop_last=no": "data.drop_last must be true or false, got 'no'",
    "model=lstm data=python_docs +data.reshard=epoch": "data.reshard has no effect with data.objective=next",
    "model=neumf data=synthetic_ratings +data.reshard=epoch": "data.reshard has no effect: data.ratings.synt",
    "trainer.batch_size=1000": "trainer.batch_size must be at most the",
    "trainer.batch_size=0": "trainer.batch_size must be an integer >= 1, or null for whole shards, got 0",
    "trainer.epochs=3": "trainer.epochs has no effect together with trainer.steps",
    "trainer.clip_norm=-1": "trainer.clip_norm must be > 0 or null, got -1",
    "schedule=autolrs optimizer.lr=0.1": "optimizer.lr has no effect with schedule=autolrs, which searches",
    "trainer.bucket_megabytes=1": "trainer.bucket_megabytes has no effect without trainer.overlap",
    "trainer.overlap=true": "trainer.overlap needs one worker per process: workers=4 but processes=1",
    "trainer.overlap=true workers=1 trainer.nonfinite=skip": "trainer.nonfinite=skip cannot be combined with",
    "trainer.overlap=true workers=1 scope=global": "trainer.overlap needs scope=layer",
    "trainer.overlap=true workers=1 diagnostics=gap": "needs the whole gradient: set trainer.overlap=false",
    "schedule=linear schedule.warmup_epochs=1 schedule.warmup_share=0.3": "warmup_share has no effect",
    "trainer.channels_last=true": "trainer.channels_last has no effect on a model without convolutions",
    "data=libsvm model=logistic_l2 trainer.evaluate_every=2": "evaluate_every has no effect with this data",
    "trainer.precision=fp16": "trainer.precision must be one of fp32, bf16, got 'fp16'",
    "trainer.average_reset_epochs=0": "trainer.average_reset_epochs must be > 0 or null",
    "trainer.overlap=true trainer.clip_norm=1": "trainer.clip_norm cannot be combined with trainer.overlap",
    "schedule=warmup_step schedule.milestones=[5,3]": "WarmupStep.milestones must be epochs >= 0",
    "model=mlp model.hidden=[0]": "model.hidden must be a list of integers >= 1, got [0]",
    "model=resnet18 data=breast_cancer": "model=resnet18 needs images",
    "model=resnet18 trainer.batch_size=1": "trainer.batch_size must be at least 2 for a model with BatchNorm",
    "tracker=wandb tracker.mode=sometimes": "tracker.mode must be online or offline, got 'sometimes'",
    "output=/proc/nothing": "/proc/nothing",
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
    hidden_only_in_mlp = [text for text in SMALL if not ("model" in keys and text.startswith("model"))]
    given = [text for text in hidden_only_in_mlp if text.split("=")[0] not in keys]
    defaults = [text for text in ("compressor=top_k", "tracker=none") if text.split("=")[0] not in keys]
    output = [f"output={tmp_path}"] if "output" not in keys else []
    monkeypatch.setattr(sys, "argv", ["run.py", *given, *defaults, *output, *typed])
    with pytest.raises(SystemExit) as refused:
        run.main()
    assert refused.value.code == 1
    printed = capfd.readouterr().err
    assert printed.startswith("error: ") and printed.count("\n") == 1, printed
    assert REFUSED[overrides] in printed
    assert not list(tmp_path.glob("*/*/metrics.jsonl"))


@pytest.mark.parametrize(
    "bad",
    [
        ["-m", "output=/proc/nothing", "seed=0,1"],
        ["compressor=null"],
        ["output=${oc.env:NOT_THERE}"],
    ],
)
def test_refusals_outside_a_job(bad: list[str]) -> None:
    result = command(*bad, "model=mlp")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")


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
    result = command(*SMALL, "tracker=none", "processes=2", f"output={tmp_path}", *bad.split())
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("compressor=top_k compressor.threshold=1", "no effect with this compressor, which has no threshold"),
        ("feedback=none feedback.scale=step", "feedback.scale has no effect with feedback=none"),
        ("data=synthetic_ratings data.drop_last=true", "Could not override 'data.drop_last': there is no"),
    ],
)
def test_unknown_choices_and_settings_leave_nothing(overrides: str, said: str, tmp_path: Path) -> None:
    result = command(*overrides.split(), f"output={tmp_path}")
    assert result.returncode != 0
    assert said in result.stderr and "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())
