"""Parts shared by the commands: parsers, errors in one line, files and paragraphs."""

import argparse
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of ``python -m results NAME``; keeps the paragraphs of ``description``, a docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m results {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def in_a_line(work: Callable[[], None]) -> int:
    """Run ``work``; return the exit status: 0, or 1 with one line on standard error for a bad file or run."""
    try:
        work()
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def hand_out(text: str, path: Path | None) -> None:
    """Write a page to ``path`` and print the path, or print the page if ``path`` is None."""
    if path is None:
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        path.write_text(text, encoding="utf-8")
        print(path)


def paragraph(words: str) -> str:
    """A paragraph of a page, wrapped to lines of 120 characters."""
    flat = " ".join(words.split())
    return textwrap.fill(flat, 120, break_on_hyphens=False, break_long_words=False) + "\n"
