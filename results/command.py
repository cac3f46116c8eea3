"""Parts shared by the commands: parsers, errors in one line, files and paragraphs."""

import argparse
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Of ``python -m results NAME``; the description is a docstring, whose paragraphs are kept."""
    return argparse.ArgumentParser(
        prog=f"python -m results {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def in_a_line(work: Callable[[], None]) -> int:
    """Do ``work``; its status: 1, with one line on standard error, where a file or a run is not as needed."""
    try:
        work()
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def hand_out(text: str, path: Path | None) -> None:
    """Write a page to ``path`` and say so, or print it where there is none."""
    if path is None:
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        path.write_text(text, encoding="utf-8")
        print(path)


def paragraph(words: str) -> str:
    """Words of a page, wrapped for reading as a file."""
    flat = " ".join(words.split())
    return textwrap.fill(flat, 120, break_on_hyphens=False, break_long_words=False) + "\n"
