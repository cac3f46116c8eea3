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
    """warm_python.py, which ends when this process does."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("warm_python.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.server = subprocess.Popen([sys.executable, str(script)], process_group=0, **pipes)

    def run(self, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess:
        """Run a script in ``ROOT``; raises ``RuntimeError`` if it takes too long."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "stdout", Path(folder) / "stderr"
            for path in (out, err):
                path.touch()
            request = {"arguments": arguments, "environment": environment, "folder": str(ROOT)}
            request |= {"stdout": str(out), "stderr": str(err)}
            too_late = threading.Timer(TIMEOUT_SECONDS, self.kill)
            too_late.start()
            try:
                self.server.stdin.write(json.dumps(request) + "\n")
                self.server.stdin.flush()
                answer = self.server.stdout.readline()
                if not answer:
                    raise RuntimeError(f"{arguments} took too long: {out.read_text()}{err.read_text()}")
            except BaseException:
                self.kill()
                _warm_python.cache_clear()
                raise
            finally:
                too_late.cancel()
            return subprocess.CompletedProcess(arguments, int(answer), out.read_text(), err.read_text())

    def kill(self) -> None:
        """With what it has forked, which is in its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.server.pid, signal.SIGKILL)
