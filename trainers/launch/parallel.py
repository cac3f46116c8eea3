"""Processes in which joblib runs a sweep's jobs: they end with the sweep, and stop when it is asked to stop.

joblib kills its processes, and all that they have started, as soon as its caller raises an exception. So the
sweep raises none at the first signal: it writes the file ``stop`` in the folder of the jobs' files. Every
process looks for this file, stops its job after the current step, and begins no other job.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from trainers.launch.isolation import STOP_SIGNALS, ignore_signal, interrupt_once
from trainers.launch.stopping import SAME_SECONDS

POLL_SECONDS = 0.5  # between two looks at the sweep
_STOP = "stop"  # in the folder of the jobs' files


def is_stopping(jobs: Path) -> bool:
    """Whether the sweep of the folder ``jobs`` was asked to stop its processes."""
    return (jobs / _STOP).exists()


def ask_when_stopped(jobs: Path) -> None:
    """From now on the first of ``STOP_SIGNALS`` asks the sweep's processes to stop.

    Another Ctrl-C, after ``SAME_SECONDS``, raises ``KeyboardInterrupt``, at which joblib kills them, and so
    does the first signal if the file cannot be written.
    """
    since = 0.0

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal since
        if not since:
            since = time.monotonic()
            try:
                (jobs / _STOP).touch()
            except OSError as error:
                raise KeyboardInterrupt from error
            if number == signal.SIGINT:
                print("stopping after these steps; Ctrl-C again stops at once", file=sys.stderr, flush=True)
        elif number == signal.SIGINT and time.monotonic() - since > SAME_SECONDS:
            raise KeyboardInterrupt

    for number in STOP_SIGNALS:
        signal.signal(number, ask)


def raise_when_stopped() -> None:
    """From now on ``STOP_SIGNALS`` raise ``KeyboardInterrupt``: this process runs the jobs itself."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.default_int_handler)


@contextmanager
def stopping_with_sweep(jobs: Path) -> Iterator[None]:
    """Context manager of a job in a process of joblib: a stop raises one ``KeyboardInterrupt`` in the block.

    Outside of such blocks the process ignores ``STOP_SIGNALS``: a terminal sends them to a whole group, and
    the sweep decides about its jobs.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, interrupt_once)
    _watch(jobs)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, ignore_signal)


@cache
def _watch(jobs: Path) -> None:
    """From now on, end this process soon after its parent, and stop its job when the sweep is to stop.

    The end of the process closes the pipe to the fork server, which asks the running job to stop.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
            if is_stopping(jobs):
                os.kill(os.getpid(), signal.SIGTERM)  # at every look: the job may not have begun at the first
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
