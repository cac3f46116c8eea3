"""Runs under torchrun: restart after the death of a process, and the end of all processes."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, command
from faults import LONG, METHODS, SMALL
from interrupting import DYING, TORCHRUN, Running, is_alive, last_step, left_behind, num_records
from resuming import assert_same

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dying_rank", ["0", "1"])
def test_torchrun_restarts_a_run_whose_process_died_in_a_write(
    dying_rank: str, short_reference: dict[str, Any], tmp_path: Path
) -> None:
    """The process is killed in the write of its fourth checkpoint. The restarted run finishes."""
    overrides = [*SMALL, METHODS["gathered"], "trainer.steps=60", f"output={tmp_path}"]
    launcher = [*TORCHRUN, "--nproc-per-node=2", "--max-restarts=3", DYING, "tensors", "4"]
    result = command(*overrides, launcher=launcher, DYING_RANK=dying_rank)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("continuing after step") == 1
    assert_same(left_behind(tmp_path), short_reference)


@pytest.mark.parametrize("victim", [0, 1])
def test_torchrun_restarts_a_run_whose_process_was_killed(
    victim: int, reference: dict[str, Any], tmp_path: Path
) -> None:
    overrides = [*SMALL, METHODS["gathered"], *LONG, f"output={tmp_path / 'out'}"]
    launcher = [*TORCHRUN, "--nproc-per-node=2", "--max-restarts=3", "run.py"]
    with Running(*overrides, log=tmp_path / "log", launcher=launcher) as running:
        for step in (105, 305):
            running.until(lambda step=step: last_step(tmp_path / "out") >= step)
            os.kill(running.ranks()[victim], signal.SIGKILL)
            time.sleep(1)
        assert running.wait() == 0, running.said()
        assert running.out.read_text().count("continuing after step") == 2
    assert_same(left_behind(tmp_path / "out"), reference)


@pytest.mark.parametrize("num_steps", [0, 20])
def test_a_killed_torchrun_leaves_nobody_behind(num_steps: int, tmp_path: Path) -> None:
    """It is killed as soon as its processes exist, and during the training."""
    overrides = [*SMALL, METHODS["gathered"], "trainer.steps=100000", f"output={tmp_path / 'out'}"]
    launcher = [*TORCHRUN, "--nproc-per-node=2", "run.py"]
    with Running(*overrides, log=tmp_path / "log", launcher=launcher) as running:
        running.until(lambda: len(running.ranks()) == 2 and num_records(tmp_path / "out") >= num_steps)
        ranks = running.ranks()  # they have sessions of their own
        running.process.kill()
        end = time.monotonic() + 300
        while alive := [pid for pid in ranks if is_alive(pid)]:
            assert time.monotonic() < end, f"still there: {alive}"
            time.sleep(0.01)


def test_survivors_below_torchrun_say_it_in_a_line(tmp_path: Path) -> None:
    overrides = [*SMALL, METHODS["gathered"], "trainer.steps=100000", f"output={tmp_path / 'out'}"]
    launcher = [*TORCHRUN, "--nproc-per-node=2", "run.py"]
    with Running(*overrides, log=tmp_path / "log", launcher=launcher) as running:
        running.until(lambda: num_records(tmp_path / "out") > 20)
        os.kill(running.ranks()[1], signal.SIGKILL)
        assert running.wait() == 1
        running.until_gone()
        own = [line for line in running.errors() if line.startswith("error: ")]
        assert own == ["error: another process ended or did not answer for 1800 s"]
        frames = [line for line in running.err.read_text().splitlines() if f'File "{ROOT}' in line]
        # torchrun's own traceback is allowed; torchrun may be installed below this folder
        assert all("site-packages" in frame for frame in frames)
