"""Safe opening of a run folder's files: links cannot redirect a read or a write."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
FOLDERS = (
    "checkpoint",
    "wandb",
    "tensorboard",
)  # the folders in a run folder; everything else in it is a file


class LinkError(OSError):
    """A link, or another kind of entry, at the path of a file or folder to be written."""


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """The content of a regular file. Raises ``OSError`` for anything else, and for a file above the limit.

    Reading a device or a pipe might never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        if found.st_size > limit_bytes:
            raise OSError(errno.EFBIG, f"has {found.st_size:,} bytes, more than {limit_bytes:,}")
        return file.read(limit_bytes)


def create(path: Path) -> BinaryIO:
    """A new file, unbuffered, opened for appending. It replaces an existing file or link of this name."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, _CREATE, 0o666), "ab", buffering=0)


@contextmanager
def replacing(path: Path, partial: Path | None = None) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` at the end of the block. After an exception ``path`` is unchanged.

    The file is on disk before it is renamed. Until then its path is ``partial``, by default ``path`` with
    the suffix .partial.
    """
    partial = partial or path.with_name(f"{path.name}.partial")
    file = create(partial)
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


def require_no_links(folder: Path) -> None:
    """Raise ``LinkError`` for a link in ``folder``, and for anything that is not a file or folder.

    Weights & Biases creates links in wandb/. Their targets must be inside wandb/, with one exception: a past
    run's logs/debug-core.log links to a log in the user's cache, and is not written again.
    """
    _require_folder(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                wandb = folder / "wandb"
                is_log = path.match("logs/debug-core.log") and path.parents[2] == wandb
                leads_out = wandb not in path.parents or not _real(path).is_relative_to(_real(wandb))
                if leads_out and not is_log:
                    raise LinkError(f"{path} is a link; nothing is written through links")
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise LinkError(f"{path} is neither a file nor a folder")


def require_run_folder(folder: Path) -> None:
    """Raise ``LinkError`` unless ``folder`` is a safe run folder to write to."""
    require_no_links(folder)
    for path in folder.iterdir():
        if path.is_dir() != (path.name in FOLDERS):
            raise LinkError(f"{path} must be a {'folder' if path.name in FOLDERS else 'file'}")
    for path in folder.glob("checkpoint/step-*"):
        if not path.is_dir():
            raise LinkError(f"{path} must be a folder")


def require_own_file(path: Path) -> None:
    """Raise ``LinkError`` for an existing file that is a symbolic link or has another hard link."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise LinkError(f"{path} must be a file of its own, not a link")


def _require_folder(folder: Path) -> None:
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise LinkError(f"{folder} must be a folder, not a link")


def _real(path: Path) -> Path:
    """``path`` with all links resolved; ``Path.resolve`` raises ``RuntimeError`` for a loop of links."""
    return Path(os.path.realpath(path))
