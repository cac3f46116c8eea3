"""Reading of untrusted files: regular files of bounded size, unpacked within bounds."""

import bz2
import gzip
import io
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_BYTES = 2**30  # bytes of any file
MOST_TEXT_BYTES = 2**25  # bytes of a text that is kept as words; WikiText-2's largest file has 10.8 million
LONGEST_LINE = 2**20  # bytes
# A packed file may unpack to 100 times its size, or to 64 MiB. Real data unpack to 3 to 10 times.
_MOST_GROWTH, _ALWAYS_ALLOWED = 100, 2**26
_UNPACK: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
_BLOCK = 2**18  # bytes read at once


def path_of(setting: str, path: str) -> Path:
    """``path`` with ``~`` expanded to the home folder. Raises ``ValueError`` for an unknown home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{setting} must begin with a known home folder, got {path!r}") from error


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


class FileBoundError(ValueError):
    """A file that is not a regular file, is too large, or is not text. The message names the file."""


def require_file(path: Path, most_bytes: int = MOST_BYTES) -> int:
    """The size of ``path`` in bytes.

    Raises ``FileNotFoundError`` if there is no file. Raises ``FileBoundError`` if it is not a regular file
    (reading a pipe could wait for ever) or has more than ``most_bytes``.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise FileBoundError(f"{path} must be a regular file")
    if found.st_size > most_bytes:
        raise FileBoundError(f"{path} must have at most {most_bytes} bytes, got {found.st_size}")
    return found.st_size


def open_bounded(
    path: Path, most_bytes: int = MOST_BYTES, longest_line: int | None = None
) -> io.BufferedReader:
    """``path`` opened for reading, unpacked if it ends in .gz or .bz2.

    With a ``longest_line`` in bytes the file must be text. Raises like ``require_file``. Reading raises
    ``FileBoundError`` beyond ``most_bytes``, for a damaged archive, and for a text with a longer line or
    a NUL.
    """
    size = require_file(path, most_bytes)
    unpack = _UNPACK.get(path.suffix)
    if unpack is None:
        return io.BufferedReader(_Bounded(path, path.open("rb"), most_bytes, longest_line), _BLOCK)
    most_bytes = min(most_bytes, max(_MOST_GROWTH * size, _ALWAYS_ALLOWED))
    return io.BufferedReader(_Bounded(path, unpack(path, "rb"), most_bytes, longest_line), _BLOCK)


def read_lines(path: Path, most_bytes: int = MOST_TEXT_BYTES) -> list[str]:
    """The lines of a UTF-8 text without their line feeds.

    Raises ``ValueError`` with the number of the first line that is not UTF-8, and like ``open_bounded``.
    """
    with open_bounded(path, most_bytes, LONGEST_LINE) as file:
        content = file.read()
    try:
        return content.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise FileBoundError(f"{path} is not UTF-8 text: line {line}: {error.reason}") from error


class _Bounded(io.RawIOBase):
    """A byte stream that counts its bytes and, for text, checks its lines."""

    def __init__(self, path: Path, source: Any, most_bytes: int, longest_line: int | None) -> None:
        self.path, self.source = path, source
        self.most_bytes, self.longest_line = most_bytes, longest_line
        self.count = 0
        self.lines, self.line_bytes = 0, 0  # read so far: complete lines, and bytes of the current one

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.source.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        block = memoryview(buffer)[:_BLOCK]
        try:
            count = self.source.readinto(block)
        except (OSError, EOFError, zlib.error) as error:
            raise FileBoundError(f"{self.path} cannot be read: {error}") from error
        self.count += count
        if self.count > self.most_bytes:
            raise FileBoundError(f"{self.path} must contain at most {self.most_bytes} bytes, got more")
        if self.longest_line is not None:
            self._look_at(bytes(block[:count]), self.longest_line)
        return count

    def _look_at(self, block: bytes, longest_line: int) -> None:
        nul, first = block.find(b"\0"), block.find(b"\n")
        if nul >= 0:
            line = self.lines + block.count(b"\n", 0, nul) + 1
            raise FileBoundError(f"{self.path} is not text: line {line} holds a NUL")
        self.line_bytes += len(block) if first < 0 else first
        if self.line_bytes > longest_line:
            raise FileBoundError(
                f"{self.path} is not text: line {self.lines + 1} has more than {longest_line} bytes"
            )
        if first >= 0:
            self.lines += block.count(b"\n")
            self.line_bytes = len(block) - 1 - block.rfind(b"\n")
