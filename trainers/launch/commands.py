"""Commands that start trainings: signals reach the trainings, which also end if the command is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

from trainers.launch.stopping import STARTER

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Commands:
    """Runs commands, also several at a time in threads; a context manager of the main thread.

    In its block SIGINT and SIGTERM are passed on to the running commands, which save their state; no command
    starts after that. ``signals`` are those received.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._running: list[subprocess.Popen[Any]] = []
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
        with subprocess.Popen(words, env=environment | starter, text=True, **options) as process:
            self._running.append(process)
            for number in self.signals:  # those that came before the process was known
                process.send_signal(number)
            output, errors = process.communicate()
            self._running.remove(process)
        if process.returncode < 0 or process.returncode >= 128:
            number = abs(process.returncode) % 128
            if number in {*signal.Signals} - {*_SIGNALS}:  # such as for exhausted memory
                killed = f"error: {' '.join(words[1:])} was killed by {signal.Signals(number).name}"
                print(killed, file=sys.stderr, flush=True)
            self.signals.append(number)
        if self.signals:
            raise KeyboardInterrupt
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

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
