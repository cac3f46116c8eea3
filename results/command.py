"""Parts shared by the commands: parsers, errors in one line, files and paragraphs."""

import argparse
import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from results.escaping import one_line
from trainers.files.atomic import replacing, write_whole

ROOT = Path(__file__).parents[1]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see: {self.prog} --help)\n")  # argparse would print the usage first


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of ``python -m results NAME``; keeps the paragraphs of ``description``, a docstring."""
    return _Parser(
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
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path.resolve(), text)


@contextmanager
def writing_over(path: Path) -> Iterator[Path]:
    """The path of a new file, which a library writes in the block; at its end it replaces ``path``.

    After an exception, an earlier file stays as it was.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.resolve()  # a link stays a link
    partial = whole.with_name(f"{whole.name}.{os.getpid()}.partial")
    with replacing(whole, partial) as file:
        if whole.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(whole.stat().st_mode))
        yield partial
    file.close()


def answer_of(program: str, question: object) -> Any:
    """The JSON that a program of this project, a module, prints for ``question``, in a separate process.

    Raises ``ValueError`` with the program's last message if it fails.
    """
    module = f"{__name__.removesuffix('results.command')}{program}"  # in a wheel, below its package
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(question)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        silent = f"python -m {module} printed no message, exit status {done.returncode}"
        printed = (done.stderr.strip() or silent).splitlines()[-1]
        raise ValueError(one_line(printed.removeprefix("error: ")))
    return json.loads(done.stdout.splitlines()[-1])


def paragraph(words: str) -> str:
    """A paragraph of a page, wrapped to lines of 120 characters."""
    flat = " ".join(words.split())
    return textwrap.fill(flat, 120, break_on_hyphens=False, break_long_words=False) + "\n"
