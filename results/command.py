"""Parts shared by the commands: parsers, errors in one line, files and paragraphs."""

import argparse
import os
import stat
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainers.records.safe_files import replacing, write_whole


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
        write_over(path, text)
        print(path)


def write_over(path: Path, text: str) -> None:
    """Write a text file; if that fails, as on a full disk, an earlier file stays as it was."""
    if path.exists() and not path.is_file():  # such as /dev/stdout, which cannot be replaced
        path.write_text(text, encoding="utf-8")
    else:
        write_whole(path.resolve(), text)


@contextmanager
def writing_over(path: Path) -> Iterator[Path]:
    """The path of a new file, which a library writes in the block; at its end it replaces ``path``.

    After an exception, an earlier file stays as it was.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    whole = path.resolve()  # a link stays a link
    partial = whole.with_name(f"{whole.name}.{os.getpid()}.partial")
    with replacing(whole, partial) as file:
        if whole.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(whole.stat().st_mode))
        yield partial
    file.close()


def paragraph(words: str) -> str:
    """A paragraph of a page, wrapped to lines of 120 characters."""
    flat = " ".join(words.split())
    return textwrap.fill(flat, 120, break_on_hyphens=False, break_long_words=False) + "\n"
