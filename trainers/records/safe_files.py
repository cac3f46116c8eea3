"""Safe opening of a run folder's files: existing links cannot redirect a read or a write."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
FOLDERS = ("checkpoint", "wandb")  # of a run folder; all else in it is a file


class LinkError(OSError):
    """Something in the place of a file or folder that is to be written."""


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """The content of a regular file. Raises ``OSError`` for anything else, and for one beyond the limit.

    A device or a pipe would be read for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is no regular file")
        if found.st_size > limit_bytes:
            raise OSError(errno.EFBIG, f"has {found.st_size:,} bytes, more than {limit_bytes:,}")
        return file.read(limit_bytes)


def create(path: Path) -> BinaryIO:
    """A new file, unbuffered, in the place of any file or link that has the name; written at its end."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, _CREATE, 0o666), "ab", buffering=0)


@contextmanager
def replacing(path: Path, partial: Path | None = None) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block has ended well; else ``path`` stays.

    It is on disk before it has the name; until then it is called ``partial``, or the name and .partial.
    """
    partial = partial or path.with_name(f"{path.name}.partial")
    file = create(partial)
    try:
        yield file
        os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        file.close()
        with suppress(OSError):  # of a full disk it would keep the last bytes
            partial.unlink()
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a crash leaves the old one or the new one. Raises ``OSError`` naming it."""
    with replacing(path) as file:
        write_all(file, text.encode(), path)
    file.close()


def write_all(file: BinaryIO, content: bytes, path: Path) -> None:
    """Write to an unbuffered file, of which a disk that is almost full may take a part at a time."""
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def require_no_links(folder: Path) -> None:
    """Raise ``LinkError`` for a link, or anything but files and folders, in ``folder``.

    Weights & Biases makes links of its own in wandb/, which must not lead out of it, except for one: a past
    run's logs/debug-core.log leads to the log of all runs in the user's cache, and is not written to again.
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
                    raise LinkError(f"{path} is a link; nothing is written where one leads")
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise LinkError(f"{path} is neither a file nor a folder")


def require_run_folder(folder: Path) -> None:
    """Raise ``LinkError`` unless ``folder`` can be written to as a run folder, by this run alone."""
    require_no_links(folder)
    for path in folder.iterdir():
        if path.is_dir() != (path.name in FOLDERS):
            raise LinkError(f"{path} must be a {'folder' if path.name in FOLDERS else 'file'}")
    for path in folder.glob("checkpoint/step-*"):
        if not path.is_dir():
            raise LinkError(f"{path} must be a folder")


def require_own_file(path: Path) -> None:
    """Raise ``LinkError`` for a file that exists and is a link, or goes by another name too."""
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
    """With all links followed; ``Path.resolve`` raises ``RuntimeError`` for a loop of them."""
    return Path(os.path.realpath(path))
