"""run.py as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = [sys.executable, "run.py"]
TIMEOUT_SECONDS = 300


def command(
    *overrides: str, launcher: list[str] | None = None, **environment: str
) -> subprocess.CompletedProcess:
    """Run run.py in a process of its own, forked from a Python that has imported torch and its like.

    ``launcher``: what is typed in front of the overrides, as ``PYTHON``, which starts from nothing.
    """
    clean = {k: v for k, v in os.environ.items() if k not in ("WANDB_MODE", "DATA_DIR")} | environment
    if launcher is None:
        return _warm_python().run(["run.py", *overrides], clean)
    return subprocess.run(
        [*launcher, *overrides],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@cache
def _warm_python() -> "WarmPython":
    return WarmPython()


class WarmPython:
    """warm_python.py, which ends when this process does; ``modules`` are what else it imports."""

    def __init__(self, *modules: str) -> None:
        words = [sys.executable, str(Path(__file__).with_name("warm_python.py")), *modules]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.server = subprocess.Popen(words, process_group=0, cwd=ROOT, **pipes)

    def start(
        self,
        arguments: list[str],
        environment: dict[str, str],
        *,
        session: bool = False,
        **streams: str | None,
    ) -> int:
        """Begin a script in ``ROOT``, the next one when ``wait`` has returned; the process's id.

        ``stdout`` and ``stderr`` are paths, or None for one that is closed.
        """
        request = {"arguments": arguments, "environment": environment, "folder": str(ROOT)}
        self.server.stdin.write(json.dumps(request | {"session": session} | streams) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def wait(self) -> int | None:
        """Its exit status, None if the server was killed."""
        answer = self.server.stdout.readline()
        return int(answer) if answer else None

    def run(self, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess:
        """Run a script in ``ROOT``; raises ``RuntimeError`` if it takes too long."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "stdout", Path(folder) / "stderr"
            for path in (out, err):
                path.touch()
            too_late = threading.Timer(TIMEOUT_SECONDS, self.kill)
            too_late.start()
            try:
                self.start(arguments, environment, stdout=str(out), stderr=str(err))
                status = self.wait()
                if status is None:
                    raise RuntimeError(f"{arguments} took too long: {out.read_text()}{err.read_text()}")
            except BaseException:
                self.kill()
                _warm_python.cache_clear()
                raise
            finally:
                too_late.cancel()
            return subprocess.CompletedProcess(arguments, status, out.read_text(), err.read_text())

    def kill(self) -> None:
        """With what it has forked, which is in its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.server.pid, signal.SIGKILL)
