"""Commands that run run.py or another script in a separate process."""

import json
import os
import re
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from warm_template import VARIABLE, fork_server

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 1200  # far more than any command takes, also on a loaded machine


def command(
    *overrides: str, launcher: list[str] | None = None, script: str = "run.py", **environment: str
) -> subprocess.CompletedProcess:
    """Run run.py in a new process, forked from a Python that has imported torch and other slow modules.

    ``launcher`` replaces ``python run.py``, in a new interpreter.
    ``script`` replaces run.py.
    """
    clean = _clean(environment)
    if launcher is None:
        return shared_warm_python().run([script, *overrides], clean)
    return subprocess.run(
        [*launcher, *overrides],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


class Background:
    """run.py like ``command``, but in the background and in its own session; has the methods of ``Popen``."""

    def __init__(self, *overrides: str, **environment: str) -> None:
        self.returncode: int | None = None
        self._streams = {name: tempfile.NamedTemporaryFile("r") for name in ("stdout", "stderr")}  # noqa: SIM115
        paths = {name: file.name for name, file in self._streams.items()}
        self._warm = shared_warm_python()
        self.pid = self._warm.start(["run.py", *overrides], _clean(environment), session=True, **paths)
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """The exit status, or None while the process runs."""
        return self._wait(0)

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> int:
        status = self._wait(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("run.py", timeout)
        return status

    def communicate(self, timeout: float = TIMEOUT_SECONDS) -> tuple[str, str]:
        """Wait for the end of the process; returns stdout and stderr."""
        self.wait(timeout)
        out, err = (Path(file.name).read_text() for file in self._streams.values())
        return out, err

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until ``condition()`` is true and return its value; fails if the command ends first."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (found := condition()):
            assert self.poll() is None, self.communicate()
            assert time.monotonic() < deadline, "it took too long"
            time.sleep(0.01)
        return found

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, seconds: float) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            os.close(self._ended)
            self.returncode = self._warm.wait(self.pid)
        return self.returncode


def jobs_table(text: str) -> dict[int, tuple[str, str]]:
    """Status and rest of the line by job number, from the table at the end of a sweep."""
    lines = re.findall(r"^ +(\d+)  (finished|skipped|failed|lost|interrupted) +\d+  (.*)$", text, re.M)
    return {int(number): (status, rest.strip()) for number, status, rest in lines}


def _clean(environment: dict[str, str]) -> dict[str, str]:
    unset = ("WANDB_MODE", "DATA_DIR", VARIABLE)
    return {k: v for k, v in os.environ.items() if k not in unset} | environment


@cache
def shared_warm_python() -> "WarmPython":
    """The server of this process, started at the first call."""
    return WarmPython()


class WarmPython:
    """A server of warm_python.py that also imports ``modules``; it ends with this process."""

    def __init__(self, *modules: str) -> None:
        (asks_from, asks), (answers, answers_to) = os.pipe(), os.pipe()
        self._server = fork_server("scripts", [asks_from, answers_to], modules=modules)
        os.close(asks_from)
        os.close(answers_to)
        self._requests, self._answers = os.fdopen(asks, "w"), os.fdopen(answers)

    def start(
        self,
        arguments: list[str],
        environment: dict[str, str],
        *,
        session: bool = False,
        **streams: str | None,
    ) -> int:
        """Start a script in ``ROOT``; returns the process's id, which is not reused before ``wait`` returns.

        ``stdout`` and ``stderr`` are paths, or None for a closed stream.
        """
        request = {"arguments": arguments, "environment": environment, "folder": str(ROOT)}
        return int(self._ask(request | {"session": session} | streams))

    def wait(self, process: int) -> int | None:
        """Wait for a process; returns its exit status, or None if the server was killed."""
        with suppress(BrokenPipeError):
            answer = self._ask({"wait": process})
            return int(answer) if answer else None
        return None

    def _ask(self, request: dict[str, Any]) -> str:
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        return self._answers.readline()

    def run(self, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess:
        """Run a script in ``ROOT``; raises ``RuntimeError`` after ``TIMEOUT_SECONDS``."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "stdout", Path(folder) / "stderr"
            for path in (out, err):
                path.touch()
            too_late = threading.Timer(TIMEOUT_SECONDS, self.kill)
            too_late.start()
            try:
                process = self.start(arguments, environment, stdout=str(out), stderr=str(err))
                status = self.wait(process)
                if status is None:
                    raise RuntimeError(f"{arguments} took too long: {out.read_text()}{err.read_text()}")
            except BaseException:
                self.kill()
                shared_warm_python.cache_clear()
                raise
            finally:
                too_late.cancel()
            return subprocess.CompletedProcess(arguments, status, out.read_text(), err.read_text())

    def kill(self) -> None:
        """Kill the server and its forked processes, which are in its group."""
        with suppress(ProcessLookupError):
            os.killpg(self._server, signal.SIGKILL)
