"""Runs killed at random moments or during a write: the same command continues them, with equal results.

A process that hangs is given up.
"""

import os
import random
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import command
from faults import LONG, METHODS, SMALL, uninterrupted
from interrupting import DYING, Running, last_step, left_behind, num_records, saved_step
from resuming import assert_same

KILLS = 20

pytestmark = pytest.mark.slow


def kill_again_and_again(tmp_path: Path, overrides: list[str], kills: int, processes: int) -> None:
    """``kills`` times, kill a random process of the run at a random moment; then finish the run."""
    random_numbers = random.Random(processes)
    overrides = [*overrides, f"processes={processes}", f"output={tmp_path / 'out'}"]
    saved = 0
    for number in range(kills):
        steps, rest = random_numbers.randint(1, 30), random_numbers.uniform(0, 0.03)
        with Running(*overrides, log=tmp_path / f"part-{number}") as running:
            running.until(lambda running=running: "steps, scope" in running.out.read_text())
            target = saved + steps
            running.until(lambda target=target: last_step(tmp_path / "out") >= target)
            time.sleep(rest)
            ranks = running.ranks()
            assert len(ranks) == (processes if processes > 1 else 0)
            candidates = [running.process.pid, *ranks]
            os.kill(random_numbers.choice(candidates), signal.SIGKILL)
            assert running.wait() not in (0, None)
            running.until_gone()
            went_on = re.search(r"continuing after step ([\d,]+) ", running.out.read_text())
            assert (int(went_on[1].replace(",", "")) if went_on else 0) == saved, "lost more than it had to"
            assert "Traceback" not in running.err.read_text(), running.said()
        saved = saved_step(tmp_path / "out")
    with Running(*overrides, log=tmp_path / "last") as running:
        assert running.wait() == 0, running.said()
        assert f"continuing after step {saved:,} " in running.out.read_text()


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_killed_at_random_moments(processes: int, reference: dict[str, Any], tmp_path: Path) -> None:
    """A gathered method has the results of an undisturbed run in one process."""
    kill_again_and_again(tmp_path, [*SMALL, METHODS["gathered"], *LONG], KILLS, processes)
    assert_same(left_behind(tmp_path / "out"), reference)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_killed_at_random_moments_with_a_linear_method(processes: int, tmp_path: Path) -> None:
    overrides = [*SMALL, METHODS["reduced"], "trainer.steps=160"]
    kill_again_and_again(tmp_path, overrides, 5, processes)
    expected = uninterrupted(tmp_path / "reference", *overrides, f"processes={processes}")
    assert_same(left_behind(tmp_path / "out"), expected)


def test_killed_at_random_moments_with_two_processes_in_a_node(tmp_path: Path) -> None:
    overrides = [*SMALL, METHODS["gathered"], "nodes=2", "trainer.steps=160"]
    kill_again_and_again(tmp_path, overrides, 5, 4)
    assert_same(left_behind(tmp_path / "out"), uninterrupted(tmp_path / "reference", *overrides))


@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("tensors", 1),
        ("tensors", 4),
        ("description", 1),
        ("description", 3),
        ("old checkpoint", 2),
        ("record", 1),
        ("record", 37),
        ("summary", 3),  # after config.yaml and environment.json
    ],
)
def test_killed_inside_a_write(
    point: str, count: int, short_reference: dict[str, Any], tmp_path: Path
) -> None:
    overrides = [*SMALL, METHODS["gathered"], "trainer.steps=60", f"output={tmp_path}"]
    died = command(point, str(count), *overrides, launcher=[sys.executable, DYING])
    assert died.returncode == -signal.SIGKILL, died.stderr
    result = command(*overrides)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert_same(left_behind(tmp_path), short_reference)
    assert not list(tmp_path.glob("**/*.partial"))


@pytest.mark.parametrize("processes", [2, 4])
def test_a_process_that_hangs_is_given_up(processes: int, tmp_path: Path) -> None:
    """After the timeout, the other processes end with an error."""
    overrides = [*SMALL, METHODS["gathered"], "trainer.steps=100000", f"processes={processes}"]
    overrides += ["timeout_seconds=10", f"output={tmp_path / 'out'}"]
    with Running(*overrides, log=tmp_path / "log") as running:
        running.until(lambda: num_records(tmp_path / "out") > 20)
        os.kill(running.ranks()[-1], signal.SIGSTOP)
        assert running.wait() == 1
        running.until_gone()
        assert running.errors() == ["error: another process ended or did not answer for 10 s"]
