"""Pages of measurements: header, Markdown tables, and the end of a program that writes one."""

import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from results import header
from trainers.config.errors import ConfigError
from trainers.run.environment import environment


class Refused(Exception):
    """The options or the machine do not allow the measurement; the message is one line."""


def head(title: str, program: str, words: Iterable[str] | None = None) -> str:
    """Title, command, commit, machine and date. ``words`` are those of the command line by default."""
    machine = header.machine_of(environment({"workers": 1, "threads": 1}))
    command = " ".join([program, *(sys.argv[1:] if words is None else words)])
    made = header.of_this_tree(command, f"{machine}, numba {metadata.version('numba')}")
    return "\n".join([f"# {title}\n", *made.lines(), ""])


def row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def columns(*names: str, text: int = 1) -> str:
    """The first two lines of a table; the first ``text`` columns contain words, the others numbers."""
    return row(*names) + "\n|" + "---|" * text + "---:|" * (len(names) - text)


def write(top: str, measure: Callable[[], list[str]], to: Path | None) -> int:
    """Print ``top`` and the lines that ``measure`` returns, and write them to ``to``; returns the status.

    A refusal or an interrupt ends in one line and leaves the file as it was.
    """
    try:
        if to is not None and not to.parent.is_dir():
            raise Refused(f"--to must be in a folder that exists, got {to}")
        lines = measure()
    except (Refused, ConfigError) as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    text = "\n".join([top, *lines, ""])
    print(text)
    if to is not None:
        to.write_text(text, encoding="utf-8")
    return 0
