"""Commands that start trainings: signals reach the trainings, which also end if the command is killed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType, TracebackType
from typing import Any

from trainers.launch.isolation import IsolatedCall, JobError
from trainers.launch.stopping import STARTER
from trainers.names import full_name

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STREAMS = ("stdout", "stderr")  # files of ``Commands.run_py``, in the order of their descriptors from 1 on


class Commands:
    """Runs commands, also several at a time in threads; a context manager of the main thread.

    In its block SIGINT and SIGTERM are passed on to the running commands, which save their state; no command
    starts after that. ``signals`` are those received.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._running: list[subprocess.Popen[Any] | IsolatedCall] = []
        self._before: dict[int, Any] = {}

    def run(
        self, words: Sequence[str], environment: dict[str, str], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; ``options`` are those of ``subprocess.Popen``.

        Raises ``KeyboardInterrupt`` if a signal was received before or meanwhile, and if one has ended the
        command, with a line unless it asks to stop.
        """
        if self.signals:
            raise KeyboardInterrupt
        starter = {STARTER: str(os.getpid())}
        with (
            subprocess.Popen(words, env=environment | starter, text=True, **options) as process,
            self._passing_on_to(process),
        ):
            output, errors = process.communicate()
        if process.returncode < 0 or process.returncode >= 128:
            number = abs(process.returncode) % 128
            if number in {*signal.Signals} - {*_SIGNALS}:  # such as for exhausted memory
                killed = f"error: {' '.join(words[1:])} was killed by {signal.Signals(number).name}"
                print(killed, file=sys.stderr, flush=True)
            self.signals.append(number)
        if self.signals:
            raise KeyboardInterrupt
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def run_py(
        self, words: Sequence[str], folder: Path, modules: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python run.py WORDS`` in ``folder``, in a fork of a process that has imported what it needs.

        ``modules`` are imports beside those of every run; the first call decides. A command that was killed
        has failed, with a line on standard error. Raises ``KeyboardInterrupt`` if a signal was received
        before or meanwhile.
        """
        if self.signals:
            raise KeyboardInterrupt
        with tempfile.TemporaryDirectory(prefix="total-error-") as streams:
            request = {"words": words, "folder": str(folder), "streams": streams}
            files = [Path(streams) / name for name in _STREAMS]
            for file in files:
                file.touch()
            status, problem = 1, ""
            try:
                process = IsolatedCall(f"{__name__}:run_in_fork", request, ["run", *modules])
                with self._passing_on_to(process):
                    status = process.result()
            except JobError as error:
                problem = f"error: {error}\n"
            output, errors = (file.read_text(encoding="utf-8") for file in files)
        if self.signals:
            raise KeyboardInterrupt
        return subprocess.CompletedProcess(words, status, output, errors + problem)

    @contextmanager
    def _passing_on_to(self, process: subprocess.Popen[Any] | IsolatedCall) -> Iterator[None]:
        self._running.append(process)
        for number in self.signals:  # those that came before the process was known
            process.send_signal(number)
        try:
            yield
        finally:
            self._running.remove(process)

    @property
    def status(self) -> int:
        """The exit status of a command that the first signal has ended."""
        return 128 + self.signals[0]

    def __enter__(self) -> "Commands":
        self._before = {number: signal.signal(number, self._pass_on) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)
        for process in self._running:
            process.send_signal(number)


def run_in_fork(request: dict[str, Any]) -> int:
    """run.py's command line in this process, as ``Commands.run_py`` asks for it; returns the exit status."""
    for number, name in enumerate(_STREAMS, 1):
        with (Path(request["streams"]) / name).open("wb") as file:
            os.dup2(file.fileno(), number)
    os.chdir(request["folder"])
    sys.argv = ["run.py", *request["words"]]
    return resolve_name(f"{full_name('run')}:command_line")()
