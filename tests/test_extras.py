"""Extras of pyproject.toml: their packages, messages about missing ones, runs without Weights & Biases."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from command_line import ROOT
from own_process import say
from results_commands import command_of_results

from results.__main__ import EXTRAS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_EXTRAS = PROJECT["optional-dependencies"]
QUICK = ("model=mlp", "model.hidden=[16]", "workers=2", "trainer.steps=1", "trainer.batch_size=8")


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", one)[0].replace("-", "_") for one in requirements}


@pytest.fixture
def without_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)


def test_each_package_is_in_the_extra_that_is_named() -> None:
    own = {package for package, extras in EXTRAS.items() if extras != "lab,results"}
    assert own == names(OF_EXTRAS["results"]) | names(OF_EXTRAS["tracking"])
    assert all(package in names(OF_EXTRAS[EXTRAS[package]]) for package in own)
    distributions = packages_distributions()
    of_lab = {distributions[package][0].lower().replace("-", "_") for package in set(EXTRAS) - own}
    assert of_lab - names(OF_EXTRAS["lab"]) == {"pyyaml"}, "a requirement of omegaconf"
    assert not set(EXTRAS) & names(PROJECT["dependencies"])
    assert "total-error[lab,results,tensorboard,tracking]" in OF_EXTRAS["dev"]


@pytest.mark.parametrize(
    ("package", "extras"), [("matplotlib", "results"), ("pyarrow", "results"), ("pandas", "lab,results")]
)
def test_results_name_the_extra_that_is_missing(
    package: str,
    extras: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def main(words: list[str]) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("results.figures.kinds.main", main)
    assert command_of_results()(["figures", str(tmp_path)]) == 1
    said = f"error: results needs {package}, which is not installed: pip install -e '.[{extras}]'\n"
    assert capsys.readouterr().err == said


def test_a_python_without_packages_is_refused_in_one_line() -> None:
    done = subprocess.run([sys.executable, "-S", "run.py"], cwd=ROOT, capture_output=True, text=True)
    said = f"error: hydra is not installed for {sys.executable}: activate .venv or pip install -e '.[lab]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


@pytest.mark.parametrize("word", ["tracker=wandb", "tracker.mode=online"])
def test_weights_and_biases_that_is_asked_for_and_missing_is_refused(
    word: str,
    tmp_path: Path,
    without_wandb: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    status, told = say(monkeypatch, capfd, *QUICK, word, f"output={tmp_path}")
    assert status == 1
    install = "pip install -e '.[tracking]'"
    assert told == f"error: {word} needs Weights & Biases, which is not installed: {install}\n"
    assert not list(tmp_path.iterdir())


def test_a_run_without_weights_and_biases_says_so_and_keeps_its_records(
    tmp_path: Path,
    without_wandb: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With the default tracker; in the test's process, because warm_python.py would import wandb."""
    from trainers.run.trackers import open_trackers

    auto = {"wandb": "if_installed"}
    assert open_trackers(folder=tmp_path, name="n", config={}, facts={}, destinations=auto) == []
    line = "Weights & Biases is not installed, so the records are only in the run folder; "
    assert capfd.readouterr().out == f"{line}pip install -e '.[tracking]'\n"
    status, told = say(monkeypatch, capfd, *QUICK, f"output={tmp_path}")
    assert (status, told) == (0, "")
