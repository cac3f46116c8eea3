"""Runs whose Weights & Biases process crashes or server is unreachable: the training continues."""

import os
import signal
from pathlib import Path

import pytest
from command_line import command
from faults import SMALL
from interrupting import Running, last_step, num_records

pytestmark = pytest.mark.slow
STEPS = 3000  # so many that the training still runs when W&B's process is found


def test_weights_and_biases_crashes(tmp_path: Path) -> None:
    overrides = [word for word in SMALL if word != "tracker=none"]
    overrides += [f"trainer.steps={STEPS}", f"output={tmp_path / 'out'}"]
    with Running(*overrides, log=tmp_path / "log") as running:
        running.until(lambda: num_records(tmp_path / "out") > 20 and running.session("wandb-core"))
        for pid in running.session("wandb-core"):
            os.kill(pid, signal.SIGKILL)
        assert running.wait() == 0
        (line,) = running.errors()
    assert line.startswith("Weights & Biases failed, the training continues without it: ")
    assert last_step(tmp_path / "out") == STEPS


def test_weights_and_biases_out_of_reach(tmp_path: Path) -> None:
    """In online mode, an unreachable server leads to offline recording, and a missing API key to an error."""
    overrides = [word for word in SMALL if word != "tracker=none"]
    overrides += ["trainer.steps=20", f"output={tmp_path}", "tracker.mode=online"]
    nowhere = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "3", "HOME": str(tmp_path)}
    refused = command(*overrides, **nowhere, WANDB_API_KEY="")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("error: tracker.mode=online: ")
    assert "API key" in refused.stderr
    result = command(*overrides, **nowhere, WANDB_API_KEY="0" * 40)
    assert result.returncode == 0, result.stderr
    (folder,) = tmp_path.glob("*/*/wandb/offline-run-*")
    assert "Weights & Biases cannot be reached" in result.stderr
    assert f"wandb sync {folder}" in result.stderr and f"wandb sync {folder}" in result.stdout
