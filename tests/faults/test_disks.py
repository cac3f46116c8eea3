"""Runs on full, small and read-only disks: one error line; with free space, the same command continues."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import command
from faults import LONG, METHODS, SMALL, STEPS, uninterrupted
from interrupting import Running, fill, last_step, left_behind, run_folder, saved_step, small_disk
from resuming import assert_same, records_in

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", request.param) as folder:
        if folder is None:
            pytest.skip("no right to mount a small filesystem")
        yield folder


WIDE = [*SMALL, METHODS["gathered"], "model.hidden=[512]", "checkpoint.every_steps=20"]


@pytest.mark.parametrize("disk", ["size=3m"], indirect=True)
def test_a_disk_too_small_for_checkpoints(disk: Path, tmp_path: Path) -> None:
    """The first checkpoint fits. Later ones are not written, with a message, and the training continues."""
    overrides = [*WIDE, f"output={disk / 'out'}"]
    with Running(*overrides, "trainer.steps=400", log=tmp_path / "log") as running:
        running.until(lambda: running.err.read_text().count("a checkpoint was not written") >= 2)
        running.process.terminate()
        assert running.wait() == 128 + signal.SIGTERM
        *failures, stopped = running.errors()
    assert all("the training continues: [Errno 28] No space left on device" in line for line in failures)
    assert "its state could not be saved" in stopped
    assert saved_step(disk / "out") == 20
    (only,) = (run_folder(disk / "out") / "checkpoint").iterdir()
    assert len(list(only.iterdir())) == 2
    result = command(*overrides, "trainer.steps=400", "checkpoint.at_end=false")
    assert result.returncode == 0
    assert "continuing after step 20 " in result.stdout
    expected = uninterrupted(tmp_path / "reference", *WIDE, "trainer.steps=400")
    assert records_in(run_folder(disk / "out")) == expected["records"]


@pytest.mark.parametrize("disk", ["size=64m"], indirect=True)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_disk_that_fills_up(disk: Path, processes: int, reference: dict[str, Any], tmp_path: Path) -> None:
    """A record cannot be written: the run ends with one line. With free space, the same command continues."""
    overrides = [*SMALL, METHODS["gathered"], *LONG, f"output={disk / 'out'}", f"processes={processes}"]
    with Running(*overrides, log=tmp_path / "log") as running:
        running.until(lambda: last_step(disk / "out") > 50)
        filler = fill(disk)
        assert running.wait() == 1
        running.until_gone()
        said = running.errors()
    (line,) = (line for line in said if line.startswith("error: "))
    assert re.match(r"error: \[Errno 28\] No space left on device: .*metrics.jsonl", line)
    said.remove(line)
    assert all(line.startswith("a checkpoint was not written, the training continues: ") for line in said)
    saved = saved_step(disk / "out")
    assert saved >= 40
    filler.unlink()
    result = command(*overrides)
    assert result.returncode == 0, result.stderr
    assert f"continuing after step {saved} " in result.stdout
    assert_same(left_behind(disk / "out"), reference)


@pytest.mark.parametrize("disk", ["size=64m,nr_inodes=100"], indirect=True)
def test_a_disk_without_room_for_the_summary(disk: Path, reference: dict[str, Any], tmp_path: Path) -> None:
    """Without free inodes, only open files can be written: checkpoints and summary fail, records do not."""
    overrides = [*SMALL, METHODS["gathered"], *LONG, f"output={disk / 'out'}"]
    with Running(*overrides, log=tmp_path / "log") as running:
        running.until(lambda: last_step(disk / "out") > 50)
        fillers = list(use_inodes(disk))
        assert running.wait() == 1
        *warnings, line = running.errors()
    assert re.match(r"error: \[Errno 28\] No space left on device: .*summary.json", line)
    assert warnings and all("a checkpoint was not written" in warning for warning in warnings)
    assert last_step(disk / "out") == STEPS
    for filler in fillers:
        filler.unlink()
    result = command(*overrides)
    assert result.returncode == 0, result.stderr
    assert "continuing after step" in result.stdout
    assert_same(left_behind(disk / "out"), reference)


def use_inodes(folder: Path) -> Iterator[Path]:
    """Use all free inodes of a small disk, also those that are freed in the next 2 s."""
    end = time.monotonic() + 2
    number = 0
    while time.monotonic() < end:
        try:
            (folder / f"filler-{number}").touch(exist_ok=False)
            yield folder / f"filler-{number}"
            number += 1
        except OSError:
            time.sleep(0.001)


@pytest.mark.parametrize("disk", ["size=8m"], indirect=True)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_read_only_folder(disk: Path, processes: int, tmp_path: Path) -> None:
    (disk / "out").mkdir()
    assert os.system(f"mount -o remount,ro {disk}") == 0
    overrides = [*SMALL, METHODS["gathered"], "trainer.steps=5", f"processes={processes}"]
    result = command(*overrides, f"output={disk / 'out'}")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert re.match(r"error: \[Errno 30\] Read-only file system: ", line)
