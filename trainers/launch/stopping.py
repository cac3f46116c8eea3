"""Requests to stop: SIGTERM and SIGINT end a training after its step, not inside it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

STARTER = "TOTAL_ERROR_STARTER"  # environment variable: process id of the command that starts a training
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_POLL_SECONDS = 0.2
SAME_SECONDS = 2.0  # within this time, a repeated signal is the launcher's copy of the terminal's signal


class StoppedError(Exception):
    """A training was stopped by ``signal``."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.signal = signal.Signals(number)

    def print_message(self) -> None:
        """Print the message; under torchrun only the first process does."""
        if os.environ.get("RANK", "0") == "0":
            print(self, file=sys.stderr, flush=True)


def begin_command() -> None:
    """Signal handlers and parents of a command that trains, set before its slow imports."""
    if sys.platform == "win32":
        sys.exit("error: Windows has no fork: use WSL, see docs/getting_started.md")
    leave_when_interrupted()
    end_with_torchrun()
    stop_with_starter()


def leave_when_interrupted() -> None:
    """Make Ctrl-C end this process at once; used before training, when no result is lost.

    With Python's default, a ``KeyboardInterrupt`` would be raised inside an import or a constructor, which
    may convert it into another error.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # another handler is kept
        signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    with suppress(Exception):  # the signal may have interrupted a write
        sys.stdout.flush()
    if "RANK" not in os.environ:  # otherwise the launcher prints it
        with suppress(OSError):
            os.write(2, b"interrupted\n")
    os._exit(128 + signal.SIGINT)


@contextmanager
def handlers_restored() -> Iterator[None]:
    """Context manager: handlers that a sweep replaces come back; a finished run goes on ignoring signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler or signal.SIG_DFL)


class StopRequest:
    """The signal that asked this process to stop, or 0; ``is_finished`` if there is nothing left to stop."""

    signal: int = 0
    is_finished = False
    _since = 0.0

    def receive(self, number: int, frame: FrameType | None) -> None:
        """A signal handler. A second Ctrl-C, after ``SAME_SECONDS``, ends the process at once."""
        if self.signal and number == signal.SIGINT and time.monotonic() - self._since > SAME_SECONDS:
            _leave()
        if not self.signal:
            self.signal, self._since = number, time.monotonic()
            if number == signal.SIGINT and os.environ.get("RANK", "0") == "0":
                print("stopping after this step; Ctrl-C again stops at once", file=sys.stderr, flush=True)


def end_by_stop_signal(status: int) -> None:
    """Under an agent of W&B, end this stopped process by the signal that the exit ``status`` stands for.

    Hyperband ends runs by a signal. An agent counts an exit status above 0 as a failed run, and exits after
    several failed runs.
    """
    number = status - 128
    if os.environ.get("WANDB_SWEEP_ID") and number in (signal.SIGTERM, signal.SIGINT):
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def end_with_torchrun() -> None:
    """``end_with_parent`` if torchrun has started this process.

    It ends at once if torchrun was killed before this call: its parent is then the first process of the
    machine, or of the container, which may also be torchrun itself.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    end_with_parent()
    with suppress(OSError):  # not Linux
        if os.getppid() == 1 and b"python" not in Path("/proc/1/cmdline").read_bytes():
            os.kill(os.getpid(), signal.SIGKILL)


def stop_with_starter() -> None:
    """If ``Commands`` has started this process, send it SIGTERM as soon as that command has ended.

    Only on Linux; elsewhere the process outlives a killed command.
    """
    starter = os.environ.pop(STARTER, None)  # commands that this one starts have another parent
    if starter is None or sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(starter):  # it ended before
        sys.exit(128 + signal.SIGTERM)


def end_with_parent() -> None:
    """Make this process end as soon as the launcher that started it has ended.

    A killed launcher cannot end its processes; they would continue and keep the lock of the run folder.
    """
    import ctypes  # imported here, like multiprocessing, so that a command starts faster
    import multiprocessing

    if sys.platform == "linux":  # without delay; replaces the SIGINT that torch has requested
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    launcher = parent.pid if parent is not None else os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="launcher", daemon=True).start()


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Context manager: record SIGTERM and SIGINT within the block; does nothing outside the main thread.

    If the run is finished, this process ignores them afterwards, unless it continues with other jobs.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        is_last = request.is_finished and before[signal.SIGINT] in (signal.SIG_DFL, _leave)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if is_last else handler)
