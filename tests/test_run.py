"""The command line from end to end: real processes, real files, real refusals."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import PYTHON, command

import run

SMALL = ["model=mlp", "model.hidden=[16]", "workers=4", "trainer.steps=5", "trainer.batch_size=8"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "run.py"]


def only_folder(output: Path) -> Path:
    (folder,) = output.glob("*/*/config.yaml")
    return folder.parent


def records(folder: Path) -> list[dict[str, float]]:
    """metrics.jsonl without what a clock measured."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines]


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def test_several_diagnostics_are_chosen_by_commas(tmp_path: Path) -> None:
    """And a finished run that did not take one says so."""
    overrides = [*SMALL, "compressor=top_k", "tracker=none", f"output={tmp_path}"]
    first = command(*overrides, "diagnostics=xi,selection_error")
    assert first.returncode == 0, first.stderr
    (record,) = [r for r in records(only_folder(tmp_path)) if "diagnostics/xi" in r]
    assert record["step"] == 5 and 0 < record["diagnostics/selection_error_0.1"] < 1
    second = command(*overrides, "diagnostics=staleness,xi")
    assert "finished already" in second.stdout
    assert second.stdout.rstrip().endswith(
        "it did not measure diagnostics=staleness; another output=FOLDER runs it anew"
    )
    third = command(*overrides, "diagnostics=xi,kappa")
    assert third.returncode == 1
    assert (
        third.stderr
        == "error: diagnostics must be some of bound, selection_error, staleness, xi, got kappa\n"
    )


def test_the_main_command(tmp_path: Path) -> None:
    """ResNet-18 on digits under the hard threshold, cut short; then found again."""
    overrides = ["compressor=hard_threshold", "model=resnet18", "workers=2", "trainer.batch_size=4"]
    overrides += ["trainer.steps=2", f"output={tmp_path}"]
    first = command(*overrides, launcher=PYTHON)
    assert first.returncode == 0, first.stderr
    folder = only_folder(tmp_path)
    assert folder.parent.name == "resnet18-digits-hard_threshold"
    steps = [r for r in records(folder) if "train/loss" in r]
    assert [r["step"] for r in steps] == [1, 2]
    assert steps[1]["compression/total_error"] > steps[0]["compression/total_error"] > 0
    summary = summary_of(folder)
    assert summary["status"] == "finished"
    assert summary["test/accuracy"] == summary["best"]["test/accuracy"]
    kinds = ("values", "indices", "padding", "metadata")
    assert sum(summary[f"comm/{kind}_bytes_total"] for kind in kinds) == summary["comm/bytes_sent_total"]
    assert len(summary["layers"]) == 62
    total = sum(layer["total_error"] for layer in summary["layers"].values())
    assert total == pytest.approx(summary["compression/total_error"], rel=1e-9)
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["packages"]["torch"] and environment["command"][0] == "run.py"
    assert list((folder / "wandb").glob("offline-run-*/*.wandb"))
    for told in ("test accuracy", "total error", "average density", "bytes sent per worker", "wandb sync"):
        assert told in first.stdout
    assert str(folder) in first.stdout

    before = (folder / "metrics.jsonl").read_bytes()
    second = command(*overrides)
    assert second.returncode == 0
    assert "finished already" in second.stdout and "test accuracy" in second.stdout
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("compressor", ["top_k", pytest.param("none", marks=pytest.mark.slow)])
def test_processes_do_not_change_a_result(tmp_path: Path, compressor: str) -> None:
    """One process, torch's launcher from within, and torchrun from without."""
    common = [*SMALL, f"compressor={compressor}", "tracker=none"]
    ways = {
        "one": command(*common, f"output={tmp_path / 'one'}"),
        "own": command(*common, "processes=2", f"output={tmp_path / 'own'}"),
    }
    if compressor == "top_k":
        ways["torchrun"] = command(*common, f"output={tmp_path / 'torchrun'}", launcher=TORCHRUN)
    found = {}
    for way, result in ways.items():
        assert result.returncode == 0, result.stderr
        found[way] = records(only_folder(tmp_path / way))
        assert result.stdout.count("run folder:") == 1
    folders = {only_folder(tmp_path / way).name for way in ways}
    assert len(folders) == 1, "processes must not change the run's id"
    if compressor == "top_k":
        assert found["one"] == found["own"] == found["torchrun"]
    for one, other in zip(found["one"], found["own"], strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_overlap_gives_the_same_numbers_in_the_same_files(tmp_path: Path) -> None:
    common = [*SMALL, "workers=2", "compressor=top_k", "tracker=none"]
    found = []
    for overlap in ([], ["trainer.overlap=true", "processes=2"]):
        output = tmp_path / str(len(overlap))
        result = command(*common, *overlap, f"output={output}")
        assert result.returncode == 0, result.stderr
        found.append((only_folder(output).name, records(only_folder(output))))
    assert found[0] == found[1]


def test_multirun_gives_each_job_a_folder_and_a_wandb_run(tmp_path: Path) -> None:
    result = command(
        "-m",
        *SMALL,
        "compressor=hard_threshold",
        "compressor.threshold=0.001,0.01",
        "seed=0,1",
        f"output={tmp_path}",
    )
    assert result.returncode == 0, result.stderr
    folders = [path.parent for path in tmp_path.glob("*/*/summary.json")]
    assert len(folders) == 4
    assert len({summary_of(f)["compression/total_error"] for f in folders}) == 4
    for folder in folders:
        assert len(list(folder.glob("wandb/offline-run-*"))) == 1


def test_a_gradient_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    result = command(*SMALL, "optimizer.lr=1e30", "trainer.steps=50", f"output={tmp_path}", "processes=2")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "the gradient of worker" in line and "is not finite in layer" in line
    folder = only_folder(tmp_path)
    kept = records(folder)
    assert kept and kept[0]["step"] == 1
    assert summary_of(folder)["status"] == "failed"
    assert list(folder.glob("wandb/offline-run-*/*.wandb"))


def test_an_unfinished_run_is_started_again(tmp_path: Path) -> None:
    overrides = [*SMALL, "tracker=none", f"output={tmp_path}"]
    assert command(*overrides).returncode == 0
    folder = only_folder(tmp_path)
    expected = records(folder)
    (folder / "summary.json").write_text('{"status": "fail')  # what a crash may leave
    result = command(*overrides)
    assert result.returncode == 0 and "starting again" in result.stdout
    assert records(folder) == expected
    assert (folder / "metrics.previous.jsonl").exists()


def test_wandb_mode_is_respected(tmp_path: Path) -> None:
    assert command(*SMALL, f"output={tmp_path}", WANDB_MODE="disabled").returncode == 0
    assert not list(tmp_path.glob("*/*/wandb/offline-run-*"))


REFUSED = {
    "budget.density=0": "TopK.density must be in (0, 1], got 0",
    "budget.density=1.5": "TopK.density must be in (0, 1], got 1.5",
    "budget.density=abc": "TopK.density must be in (0, 1], got 'abc'",
    "compressor=hard_threshold compressor.threshold=-1": "threshold must be a finite number >= 0, got -1",
    "compressor=hard_threshold compressor.threshold=nan": "threshold must be a finite number >= 0, got nan",
    "compressor=hard_threshold compressor.threshold=1 budget.density=0.1": "budget.density has no effect",
    "compressor=none budget.density=0.1": "budget.density has no effect",
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
    "device=cuda": "device=cuda: torch sees no CUDA device",
    "threads=100000": "threads must be at most 1024, got 100000",
    "name=../x": "name must be the name of one folder, got '../x'",
    "output=null": "output must be a path, got None",
    "optimizer.momentum=2": "optimizer.momentum must be in [0, 1), got 2",
    "optimizer.nesterov=no": "optimizer.nesterov must be true or false, got 'no'",
    "tracker=wandb tracker.tags=5": "tracker.tags must be a list of words, got 5",
    "device=tpu": "device must be auto, cpu or cuda, got 'tpu'",
    "kernels=fast": "kernels must be auto or reference, got 'fast'",
    "wire.indices=zip": "wire.indices must be one of plain, auto, bitmap, rice, got 'zip'",
    "wire.values=fp8": "wire.values must be one of fp32, bf16, fp16, int8, got 'fp8'",
    "compressor=none wire.values=bf16": "wire.values must be fp32 with NoCompression, got 'bf16'",
    "compressor=random_k wire.indices=auto": "wire.indices=auto has no effect with RandomK",
    "scope=both": "scope must be layer or global, got 'both'",
    "feedback.scale=both": "ErrorFeedback.scale must be 'gradient' or 'step', got 'both'",
    "budget.threshold=0.1": "budget.threshold has no effect with this compressor, which has no threshold",
    "model=logistic_l2": "models.logistic_l2.logistic_l2 cannot be trained on the data of data.sklearn_data.",
    "optimizer.lr=null": "optimizer.lr must be > 0: this model has no step size of its own, got None",
    "data.alpha=0.5": "data.alpha has no effect with data.partition=iid",
    "data.partition=dirichlet": "data.alpha must be in [1e-6, 1e6] for data.partition=dirichlet",
    "data.partition=x": "data.partition must be one of iid, contiguous, by_label, dirichlet, got 'x'",
    "trainer.batch_size=1000": "trainer.batch_size must be at most the",
    "trainer.batch_size=0": "trainer.batch_size must be an integer >= 1, or null for whole shards, got 0",
    "trainer.epochs=3": "trainer.epochs has no effect beside trainer.steps",
    "trainer.clip_norm=-1": "trainer.clip_norm must be > 0 or null, got -1",
    "trainer.overlap=true": "trainer.overlap needs one worker per process: workers=4 but processes=1",
    "trainer.overlap=true workers=1 trainer.nonfinite=skip": "trainer.nonfinite=skip cannot go with",
    "trainer.overlap=true workers=1 scope=global": "trainer.overlap needs scope=layer",
    "model=resnet20 trainer.overlap=true workers=1 trainer.channels_last=true": "cannot go with trainer.c",
    "schedule=linear schedule.warmup_epochs=1 schedule.warmup_share=0.3": "warmup_share has no effect",
    "trainer.channels_last=true": "trainer.channels_last has no effect on a model without convolutions",
    "data=libsvm model=logistic_l2 trainer.evaluate_every=2": "evaluate_every has no effect: these data",
    "trainer.precision=fp16": "trainer.precision must be one of fp32, bf16, got 'fp16'",
    "trainer.average_reset_epochs=0": "trainer.average_reset_epochs must be > 0 or null",
    "trainer.overlap=true trainer.clip_norm=1": "trainer.clip_norm cannot go with trainer.overlap",
    "schedule=warmup_step schedule.milestones=[5,3]": "WarmupStep.milestones must be epochs >= 0",
    "model=mlp model.hidden=[0]": "model.hidden must be a list of integers >= 1, got [0]",
    "model=resnet18 data=breast_cancer": "model=resnet18 needs images",
    "model=resnet18 trainer.batch_size=1": "trainer.batch_size must be at least 2 for a model with BatchNorm",
    "tracker=wandb tracker.mode=sometimes": "tracker.mode must be online, offline or null, got 'sometimes'",
    "output=/proc/nothing": "/proc/nothing",
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_refusals(
    overrides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """One line, before training, and nothing in the output folder that looks like a run."""
    typed = overrides.split()
    keys = {text.split("=")[0] for text in typed}
    hidden_only_in_mlp = [text for text in SMALL if not ("model" in keys and text.startswith("model"))]
    given = [text for text in hidden_only_in_mlp if text.split("=")[0] not in keys]
    defaults = [text for text in ("compressor=top_k", "tracker=none") if text.split("=")[0] not in keys]
    output = [f"output={tmp_path}"] if "output" not in keys else []
    monkeypatch.setattr(sys, "argv", ["run.py", *given, *defaults, *output, *typed])
    monkeypatch.setattr(run, "statuses", [])
    run.main()
    printed = capfd.readouterr().err
    assert printed.startswith("error: ") and printed.count("\n") == 1, printed
    assert REFUSED[overrides] in printed
    assert run.statuses == [1]
    assert not list(tmp_path.glob("*/*/metrics.jsonl"))


@pytest.mark.parametrize(
    "bad", [["-m", "output=/proc/nothing", "seed=0,1"], ["compressor=null"], ["output=${oc.env:NOT_THERE}"]]
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
    """Also what only the first process notices: an output folder that cannot be written."""
    result = command(*SMALL, "tracker=none", "processes=2", f"output={tmp_path}", *bad.split())
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("compressor=nothing", "Could not find 'compressor/nothing'"),
        ("compressor=top_k compressor.threshold=1", "Key 'threshold' is not in struct"),
        ("feedback=none feedback.scale=step", "Key 'scale' is not in struct"),
        ("wrokers=4", "Key 'wrokers' is not in struct"),
    ],
)
def test_unknown_choices_and_keys_are_hydras(overrides: str, said: str, tmp_path: Path) -> None:
    result = command(*overrides.split(), f"output={tmp_path}")
    assert result.returncode != 0
    assert said in result.stderr and "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_help_names_the_groups() -> None:
    result = command("--help")
    assert result.returncode == 0
    for told in ("compressor: accordion, hard_threshold, none, random_block", "model: ", "python run.py -m"):
        assert told in result.stdout
