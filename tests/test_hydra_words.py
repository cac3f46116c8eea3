"""Hydra's own options and settings on the command line."""

from pathlib import Path

import pytest
from command_line import command

from trainers.config import words


def test_options_may_follow_overrides() -> None:
    assert words.checked(["seed=0,1", "-m", "workers=2"]) == ["-m", "seed=0,1", "workers=2"]
    assert words.checked(["seed=0", "--cfg", "job"]) == ["--cfg", "job", "seed=0"]
    assert words.checked(["-m", "--cfg", "job", "+sweeps=smoke"]) == ["--cfg", "job", "+sweeps=smoke"]


@pytest.mark.parametrize("word", ["hydra.run.dir=x", "hydra.verbose=true"])
def test_settings_of_hydra_without_effect_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="has no effect: "):
        words.checked([word])


@pytest.mark.parametrize("typed", [["--hydra-help"], ["-m", "--cfg", "job", "+sweeps=smoke"]])
def test_hydras_pages_are_printed(typed: list[str]) -> None:
    printed = command(*typed)
    assert printed.returncode == 0 and printed.stderr == "" and printed.stdout


def test_a_sweep_without_m_is_refused(tmp_path: Path) -> None:
    refused = command("+sweeps=smoke", f"output={tmp_path}", "seed=0")
    assert refused.returncode == 1 and not list(tmp_path.iterdir())
    assert refused.stderr == "error: this is a sweep over compressor: put -m first, or type one job's\n"


def test_sweeps_of_agents_are_no_options_of_hydra(tmp_path: Path) -> None:
    for typed in ("--help", "+sweeps=nothing"):
        said = command(typed)
        listed = said.stdout + said.stderr
        assert "smoke" in listed and "wandb/" not in listed and "sweeps/wandb" not in listed
    refused = command("-m", "+sweeps=wandb/smoke", f"output={tmp_path}")
    expected = "sweeps/wandb/smoke is for the agents of Weights & Biases: wandb sweep sweeps/wandb/smoke.yaml"
    assert (refused.returncode, refused.stderr) == (1, f"error: {expected}\n")
