"""run.py in the background, for tests that kill it, stop it or fill its disk; results of runs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_line import ROOT, TIMEOUT_SECONDS
from resuming import outcome_in

from trainers.checkpoint.files import is_complete, step_folders

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
DYING = str(Path(__file__).with_name("dying_run.py"))


class Running:
    """A command in the background; the end of the ``with`` block kills it and its child processes."""

    def __init__(self, *words: str, log: Path, launcher: Sequence[str] = (), **environment: str) -> None:
        self.out, self.err = log.with_suffix(".out"), log.with_suffix(".err")
        clean = {k: v for k, v in os.environ.items() if k not in ("WANDB_MODE", "DATA_DIR", "WANDB_API_KEY")}
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [*(launcher or [sys.executable, "run.py"]), *words],
                cwd=ROOT,
                env=clean | environment,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.session():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def session(self, *words: str) -> list[int]:
        """Living processes of this command; ``words`` select those with one of them in the command line."""
        return session(self.process.pid, *words)

    def ranks(self) -> list[int]:
        """The training processes of a launcher, the project's own or torchrun."""
        found = self.session("spawn_main", "run.py", "dying_run.py")
        return [pid for pid in found if pid != self.process.pid]

    def wait(self, seconds: float = TIMEOUT_SECONDS) -> int:
        return self.process.wait(seconds)

    def until(self, condition: Any) -> None:
        """Wait until ``condition()`` is true; fails if the command ends first."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert self.is_running and time.monotonic() < end, self.said()
            time.sleep(0.002)

    def until_gone(self, seconds: float = 300) -> None:
        """Wait until no process of this command is left."""
        end = time.monotonic() + seconds
        while self.session():
            assert time.monotonic() < end, f"still there: {self.session()}"
            time.sleep(0.01)

    def said(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def errors(self) -> list[str]:
        return self.err.read_text().splitlines()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def session(leader: int, *words: str) -> list[int]:
    """Living processes in the session of ``leader``, and its children; filtered like ``Running.session``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, _, session = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:4]
            command = (entry / "cmdline").read_text() + (entry / "comm").read_text()
        except OSError:  # the process has ended
            continue
        own = leader in (int(parent), int(session))  # W&B's service has its own session
        if own and state != "Z" and (not words or any(word in command for word in words)):
            found.append(int(entry.name))
    return sorted(found)


def run_folder(output: Path) -> Path | None:
    """The only run folder below ``output``, or None if it does not exist yet."""
    found = [path.parent for path in output.glob("*/*/config.yaml")]
    assert len(found) <= 1
    return found[0] if found else None


def num_records(output: Path) -> int:
    folder = run_folder(output)
    path = folder / "metrics.jsonl" if folder else None
    return path.read_bytes().count(b"\n") if path is not None and path.exists() else 0


def last_step(output: Path) -> int:
    """The last step in metrics.jsonl, 0 without one."""
    folder = run_folder(output)
    path = folder / "metrics.jsonl" if folder else None
    lines = path.read_bytes().split(b"\n")[:-1] if path is not None and path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def saved_step(output: Path) -> int:
    """The step of the newest checkpoint with all files, 0 without one."""
    folder = run_folder(output)
    found = [path for path in step_folders(folder / "checkpoint") if is_complete(path)] if folder else []
    return int(found[0].name.removeprefix("step-")) if found else 0


def left_behind(output: Path) -> dict[str, Any]:
    """Results of a finished run: records and summary without times, tensors of the last checkpoint."""
    found = outcome_in(run_folder(output))
    assert found["summary"]["status"] == "finished"
    assert any("reducer" in name for name in found["tensors"])
    return found


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path | None]:
    """A small filesystem at ``folder``; None if this user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        made = False
    try:
        yield folder if made else None
    finally:
        if made:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill a small disk; returns the file that fills it."""
    path = folder / "filler"
    with path.open("ab", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path
