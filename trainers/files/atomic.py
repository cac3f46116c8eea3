"""Writing of files as a whole: a crash or a full disk leaves the old file or the new one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, partial: Path | None = None) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` at the end of the block. After an exception ``path`` is unchanged.

    The file is on disk before it is renamed. Until then its path is ``partial``, by default ``path`` with
    the suffix .partial.
    """
    partial = partial or path.with_name(f"{path.name}.partial")
    file = partial.open("wb", buffering=0)
    try:
        yield file
        os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        file.close()
        with suppress(OSError):  # it would use the last bytes of a full disk
            partial.unlink()
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a crash leaves the old or the new one. Raises ``OSError`` with its path."""
    with replacing(path) as file:
        write_all(file, text.encode(), path)
    file.close()


def write_all(file: BinaryIO, content: bytes, path: Path) -> None:
    """Write all of ``content`` to an unbuffered file; one write to an almost full disk may be partial."""
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
