"""Requests to stop: SIGTERM and SIGINT end a training after its step, not inside it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_LOOK_SECONDS = 0.2
SAME_SECONDS = 2.0  # a launcher repeats the signal that a terminal sent to everybody already


class StoppedError(Exception):
    """A training that was asked to stop, and did."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.signal = signal.Signals(number)

    def say(self) -> None:
        """Print how far the run came; below torchrun the first process alone does."""
        if os.environ.get("RANK", "0") == "0":
            print(self, file=sys.stderr, flush=True)


def leave_when_interrupted() -> None:
    """Have Ctrl-C end this process at once, as long as there is nothing to lose.

    An exception would come out of whatever is imported or built just then, and not always as what it is.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody has decided already
        signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    with suppress(Exception):  # it may be in the middle of a write
        sys.stdout.flush()
    if "RANK" not in os.environ:  # else who started this process says it
        with suppress(OSError):
            os.write(2, b"interrupted\n")
    os._exit(128 + signal.SIGINT)


class StopRequest:
    """Whether this process was asked to stop, and by which signal."""

    signal: int = 0  # none yet
    _since = 0.0

    def ask(self, number: int, frame: FrameType | None) -> None:
        """A signal handler. A second Ctrl-C, later than a launcher's echo of the first, stops at once."""
        if self.signal and number == signal.SIGINT and time.monotonic() - self._since > SAME_SECONDS:
            _leave()
        if not self.signal:
            self.signal, self._since = number, time.monotonic()
            if number == signal.SIGINT and os.environ.get("RANK", "0") == "0":
                print("stopping after this step; Ctrl-C again stops at once", file=sys.stderr, flush=True)


def end_with_torchrun() -> None:
    """``end_with_parent``, where that is torchrun."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent()


def end_with_parent() -> None:
    """Have this process, which a launcher started, killed as soon as the launcher is gone.

    A launcher that is killed cannot end its processes; they would go on, and keep the run folder.
    """
    import ctypes  # like the next one it takes longer than a start of a command has for it
    import multiprocessing

    if sys.platform == "linux":  # at once, and in the place of the SIGINT that torch has asked for
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    launcher = parent.pid if parent is not None else os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(_LOOK_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="launcher", daemon=True).start()


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Listen for SIGTERM and SIGINT inside the block. Elsewhere than in the main thread nothing can."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
