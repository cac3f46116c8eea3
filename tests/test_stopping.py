"""SIGTERM and Ctrl-C: the step ends, the state is saved, the same command continues."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, Background, command
from configs import resolved
from interrupting import session
from ports import is_loopback, listening
from resuming import assert_same, outcome

from trainers.launch.processes import _Group
from trainers.launch.stopping import StoppedError, stop_request
from trainers.run.folder import RunFolder

SETTINGS = ("model=mlp", "data=digits", "compressor=hard_threshold", "workers=4", "tracker=none")
SETTINGS += ("trainer.batch_size=4", "trainer.steps=250", "trainer.evaluate_every=1000")
SETTINGS += ("checkpoint.at_end=true",)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict:
    output = tmp_path_factory.mktemp("whole")
    assert command(*SETTINGS, f"output={output}").returncode == 0
    return outcome(resolved(*SETTINGS, f"output={output}"))


INTERRUPTED = """
import os, signal, sys
class AtImport:
    def find_spec(self, name, *_):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, AtImport())
"""


@pytest.mark.parametrize(
    "module",
    [
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("trainers.launch.stopping", "numpy.random")
        ),
        "trainers.config.guard",
    ],
)
def test_control_c_while_it_starts_is_one_line(tmp_path: Path, module: str) -> None:
    """SIGINT arrives during the imports of run.py or torch."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED.replace("MODULE", repr(module)))
    process = subprocess.run(
        [sys.executable, "run.py", *SETTINGS, f"output={tmp_path / 'out'}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("number", "processes", "everybody"),
    [
        (signal.SIGINT, 2, True),
        pytest.param(signal.SIGTERM, 1, False, marks=pytest.mark.slow),  # test_isolation sends it to a job
        pytest.param(signal.SIGTERM, 2, False, marks=pytest.mark.slow),
    ],
)
def test_the_same_command_goes_on(
    tmp_path: Path, whole: dict, number: signal.Signals, processes: int, everybody: bool
) -> None:
    """Ctrl-C reaches all processes of the group, a job scheduler's SIGTERM only the first process.

    Several processes listen only on the loopback interface; their folder for the connection is removed.
    """
    config = resolved(*SETTINGS, f"output={tmp_path}")
    folder = RunFolder(config)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = (*SETTINGS, f"output={tmp_path}", f"processes={processes}")
    process = Background(*words, TMPDIR=str(temporary))
    process.until(lambda: folder.metrics.exists() and folder.metrics.read_bytes().count(b"\n") >= 20)
    listened_on = listening(session(process.pid))
    assert bool(listened_on) == (processes > 1) and all(map(is_loopback, listened_on))
    modes = [stat.S_IMODE(path.stat().st_mode) for path in temporary.glob("total-error-*")]
    assert modes == ([0o700] if processes > 1 else [])
    (os.killpg if everybody else os.kill)(process.pid, number)
    _, told = process.communicate()
    assert process.returncode == 128 + number, told
    assert not list(temporary.glob("total-error-*"))
    assert "; its state is saved; the same command continues from there" in told
    assert "Traceback" not in told
    assert not (folder.path / "summary.json").exists()
    finished = command(*SETTINGS, f"output={tmp_path}")  # in one process, also if the stopped run had two
    assert finished.returncode == 0 and "continuing after step" in finished.stdout
    assert_same(whole, outcome(config))


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_finished_run_ignores_signals(is_finished: bool) -> None:
    """One that arrives after summary.json was written must not end it by the signal."""
    before = [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with stop_request() as request:
            request.is_finished = is_finished
        assert signal.getsignal(signal.SIGTERM) is (signal.SIG_IGN if is_finished else signal.SIG_DFL)
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


def test_processes_that_are_done_are_not_stopped() -> None:
    group = _Group(2)
    group.stop_signal = signal.SIGTERM
    group.reports = {0: {"done": True}, 1: {"done": True}}
    group.judge()
    group.reports[1] = {"stopped": signal.SIGTERM, "message": ""}
    with pytest.raises(StoppedError):
        group.judge()
