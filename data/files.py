"""Reading of data files: missing, unreadable and damaged ones are named in one line."""

import bz2
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

_UNPACK: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


def path_of(setting: str, path: str) -> Path:
    """``path`` with ``~`` expanded to the home folder. Raises ``ValueError`` for an unknown home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{setting} must begin with a known home folder, got {path!r}") from error


def find(folder: Path, name: str, suffixes: Iterable[str]) -> Path | None:
    """The file ``name`` in ``folder``, with the first of ``suffixes`` under which there is one."""
    candidates = (folder / (name + suffix) for suffix in suffixes)
    return next((path for path in candidates if path.is_file()), None)


def not_downloaded(data: str, root: Path, path: Path, other_names: str = "") -> FileNotFoundError:
    """The error for a missing file of ``data=NAME`` below ``root``; ``other_names`` are accepted, too.

    It suggests a folder above or below ``root`` that has the file.
    """
    name, root = path.relative_to(root), root.absolute()
    for other in (*root.parents[:2], *root.glob("*")):
        if os.path.isfile(other / name):  # noqa: PTH113  Path.is_file raises for a folder of other users
            return FileNotFoundError(f"data={data}: no file {path}{other_names}; data.root={other} has it")
    remedy = "data.download=true downloads it, data.root=DIR names another folder"
    return FileNotFoundError(f"data={data}: no file {path}{other_names}; {remedy}")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors of reading ``path``, also of a damaged .gz or .bz2, become a ``ValueError`` that names it."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of ``path``, unpacked if it ends in .gz or .bz2. Raises like ``reading``."""
    with reading(path), _UNPACK.get(path.suffix, open)(path, "rb") as file:
        yield file


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text without their line feeds.

    Raises ``ValueError`` with the number of the first line that is not UTF-8 text, and like ``reading``.
    """
    with opened(path) as file:
        content = file.read()
    try:
        if b"\0" in content:  # a crash while a file is written can leave zeros in it
            raise UnicodeDecodeError("utf-8", content, content.index(b"\0"), len(content), "a NUL")
        return content.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path} is not UTF-8 text: line {line}: {error.reason}") from error
