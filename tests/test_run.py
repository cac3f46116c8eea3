"""The command line from end to end, in separate processes with real files."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, command

from trainers.files.files import read_config
from trainers.identity.identity import identify

SMALL = ["model=mlp", "model.hidden=[16]", "workers=4", "trainer.steps=5", "trainer.batch_size=8"]
AS_TORCHRUN = "tests/helpers/as_torchrun.py"


def only_folder(output: Path) -> Path:
    (folder,) = output.glob("*/*/config.yaml")
    return folder.parent


def records(folder: Path) -> list[dict[str, float]]:
    """The records of metrics.jsonl without times."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines]


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def test_several_diagnostics_are_chosen_by_commas(tmp_path: Path) -> None:
    """The message about a finished run names chosen diagnostics that it did not measure."""
    overrides = [*SMALL, "compressor=top_k", "tracker=none", "kernels=reference", f"output={tmp_path}"]
    first = command(*overrides, "diagnostics=xi,selection_error")
    assert first.returncode == 0, first.stderr
    (record,) = [r for r in records(only_folder(tmp_path)) if "diagnostics/xi" in r]
    assert record["step"] == 5 and 0 < record["diagnostics/selection_error_0.1"] < 1
    second = command(*overrides, "diagnostics=staleness,xi")
    assert "finished already" in second.stdout
    assert second.stdout.rstrip().endswith(
        "it did not measure diagnostics=staleness; another output=FOLDER runs it again"
    )
    third = command(*overrides, "diagnostics=xi,kappa")
    assert third.returncode == 1
    known = "bound, gap, hindsight, selection_error, staleness, xi"
    assert third.stderr == f"error: diagnostics must be some of {known}, got kappa\n"


def test_the_main_command(tmp_path: Path) -> None:
    """A short run of ResNet-18 on digits with the hard threshold; the same command finds it again."""
    overrides = ["compressor=hard_threshold", "model=resnet18", "workers=2", "trainer.batch_size=4"]
    overrides += ["trainer.steps=2", f"output={tmp_path}"]
    first = command(*overrides)
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
    (recorded,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    rule = 1 / (2 * math.sqrt(0.001 * sum(layer["elements"] for layer in summary["layers"].values())))
    assert summary["compression/threshold"] == rule and str(rule).encode() in recorded.read_bytes()
    assert re.search(rf"^lambda +{rule:.4g} *$", first.stdout, re.MULTILINE)
    for told in ("test accuracy", "total error", "average density", "bytes that left a worker", "wandb sync"):
        assert told in first.stdout
    assert str(folder) in first.stdout

    before = (folder / "metrics.jsonl").read_bytes()
    second = command(*overrides)
    assert second.returncode == 0
    assert "finished already" in second.stdout and "test accuracy" in second.stdout
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("compressor", ["top_k", pytest.param("none", marks=pytest.mark.slow)])
def test_processes_do_not_change_a_result(tmp_path: Path, compressor: str) -> None:
    """One process, two processes of the project's launcher, and two with torchrun's environment."""
    common = [*SMALL, f"compressor={compressor}", "tracker=none"]
    ways = {
        "one": command(*common, f"output={tmp_path / 'one'}"),
        "own": command(*common, "processes=2", f"output={tmp_path / 'own'}"),
    }
    if compressor == "top_k":
        ways["torchrun"] = command(*common, f"output={tmp_path / 'torchrun'}", script=AS_TORCHRUN)
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


def test_multirun_gives_each_job_a_folder_and_a_wandb_run(tmp_path: Path) -> None:
    result = command(
        "-m",
        *SMALL,
        "compressor=hard_threshold",
        "compressor.threshold=0.001,0.01",
        f"output={tmp_path}",
    )
    assert result.returncode == 0, result.stderr
    folders = [path.parent for path in tmp_path.glob("*/*/summary.json")]
    assert len(folders) == 2
    assert len({summary_of(f)["compression/total_error"] for f in folders}) == 2
    for folder in folders:
        assert len(list(folder.glob("wandb/offline-run-*"))) == 1
    firsts = [line for line in result.stdout.splitlines() if line.startswith("job ")]
    assert firsts[0] == "job 1 of 2: compressor.threshold=0.001"
    assert re.fullmatch(r"job 2 of 2: compressor.threshold=0.01; 1 done, about \d+ (s|min) left", firsts[1])
    parts = sorted(str(part) for part in tmp_path.glob("*/*/wandb/offline-run-*"))
    (upload,) = [line for line in result.stdout.splitlines() if "wandb sync" in line]
    assert upload == f"to Weights & Biases: wandb sync {' '.join(parts)}"
    assert result.stdout.rstrip().endswith(upload)


@pytest.mark.slow
def test_all_methods_in_one_sweep(tmp_path: Path) -> None:
    """The guide's command for a first comparison: no method is refused or diverges. It takes minutes."""
    words = ("-m", "compressor=glob(*)", "experiment=quick", "tracker=none", f"output={tmp_path}")
    ended = command(*words)
    assert ended.returncode == 0, ended.stderr
    methods = {path.stem for path in (ROOT / "conf" / "compressor").glob("*.yaml")}
    folders = [path.parent for path in tmp_path.glob("*/*/summary.json")]
    assert {summary_of(folder)["status"] for folder in folders} == {"finished"}
    assert sorted(identify(read_config(folder)).method.compressor for folder in folders) == sorted(methods)
