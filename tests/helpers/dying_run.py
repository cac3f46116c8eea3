"""run.py that kills itself at a given point: dying_run.py POINT COUNT [overrides].

When the process reaches the point for the COUNT-th time, it does part of the write and sends SIGKILL.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import trainers.checkpoint.files
import trainers.checkpoint.saving
import trainers.run.folder
import trainers.run.trackers


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_count(count: int, last: Callable[..., Any], usual: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls ``usual``; its ``count``-th call calls ``last`` and kills the process."""
    calls = 0

    def call(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            last(*arguments, **more)
            die()
        return usual(*arguments, **more)

    return call


def half_of_file(tensors: Any, path: Path) -> None:
    save_file(tensors, path)
    os.truncate(path, path.stat().st_size // 2)


def half_of_folder(folder: Path, **_: Any) -> None:
    for path in sorted(folder.iterdir())[:1]:
        path.unlink()


def half_of_line(lines: Any, line: bytes) -> None:
    lines.file.write(line[: len(line) // 2])


def half_of_text(path: Path, text: str) -> None:
    path.with_name(f"{path.name}.partial").write_text(text[: len(text) // 2])


def nothing(*_: Any, **more: Any) -> None:
    pass


save_file = trainers.checkpoint.files.save_file
POINTS = {
    "tensors": (trainers.checkpoint.files, "save_file", half_of_file),
    "description": (trainers.checkpoint.files, "_digest_of", nothing),  # tensors without description
    "old checkpoint": (trainers.checkpoint.saving.shutil, "rmtree", half_of_folder),
    "record": (trainers.run.trackers.JsonLines, "_write", half_of_line),
    "checkpoints": (trainers.checkpoint.saving.Checkpoints, "clear", nothing),  # after the summary
    "summary": (trainers.run.folder, "write_whole", half_of_text),
}


if __name__ == "__main__":
    point, count = sys.argv[1], int(sys.argv[2])
    del sys.argv[1:3]
    owner, name, last = POINTS[point]
    if os.environ.get("RANK", "0") == os.environ.get("DYING_RANK", "0"):
        setattr(owner, name, at_count(count, last, getattr(owner, name)))
    import run

    sys.exit(run.command_line())
