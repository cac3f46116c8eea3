"""A process that hangs: after the timeout, the other processes end with an error."""

import os
import signal
from pathlib import Path

import pytest
from faults import METHODS, SMALL
from interrupting import Running, num_records

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("processes", [2, 4])
def test_a_process_that_hangs_is_given_up(processes: int, tmp_path: Path) -> None:
    overrides = [*SMALL, METHODS["gathered"], "trainer.steps=100000", f"processes={processes}"]
    overrides += ["timeout_seconds=4", f"output={tmp_path / 'out'}"]
    with Running(*overrides, log=tmp_path / "log") as running:
        running.until(lambda: num_records(tmp_path / "out") > 20)
        os.kill(running.ranks()[-1], signal.SIGSTOP)
        assert running.wait(90) == 1
        running.until_gone()
        assert running.errors() == ["error: another process ended or did not answer for 4 s"]
