"""Download of published files, and extraction of files from archives.

A download uses https only, also after a redirection, and has a limit on its size. A member's name in an
archive is never used as a path on disk.
"""

import errno
import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MAX_BYTES = 2**30
_SILENCE_SECONDS = 60  # a server that sends nothing for this long counts as not answering
_BLOCK = 2**20  # bytes
_LOOPBACK = [("http", name) for name in ("localhost", "127.0.0.1", "::1")]


def fetch(
    url: str,
    target: Path,
    md5: str | None,
    *,
    max_bytes: int = MAX_BYTES,
    look_at: Callable[[Path], object] = lambda arrived: None,
    files: Sequence[Path] = (),
) -> None:
    """Download ``url`` to ``target``. ``target`` is created only if the file has the given MD5.

    ``look_at`` is called with the path of the downloaded file; if it raises ``ValueError``, the file is
    refused. ``files`` are the files that the data set needs; the error for an unreachable server names
    them. Raises ``OSError`` if the server does not answer, does not use https or redirects to another
    protocol, and if the file is incomplete, has more than ``max_bytes`` or is refused.
    """
    try:
        _require_safe(url)
        with _arriving(target) as arriving:
            found = _download(url, arriving, max_bytes)
            if md5 is not None and found != md5:
                raise OSError(f"its MD5 is {found}, not {md5}")
            look_at(arriving)
    except (OSError, ValueError, http.client.HTTPException) as error:
        remedy = ""
        if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
            held = ", ".join(map(str, files or [target]))
            remedy = "; without a network, copy the files to these paths, or give a folder with them as "
            remedy += f"data.root: {held}"
        raise OSError(f"data.download: {url} was not downloaded: {_shown(error)}{remedy}") from error


def take_from_zip(archive: Path, members: dict[str, Path]) -> None:
    """Write each member in ``members`` to its path. A file appears only when it is complete.

    Raises ``ValueError`` if ``archive`` is not a zip file or lacks a member.
    """
    with _expecting(archive), zipfile.ZipFile(archive) as packed:
        for name, path in members.items():
            with packed.open(name) as source, _arriving(path) as arriving, arriving.open("wb") as file:
                shutil.copyfileobj(source, file)


def take_from_tar(archive: Path, members: dict[str, Path]) -> None:
    """``take_from_zip`` for a .tar.gz file. A member that is a link or a device is refused."""
    with _expecting(archive), tarfile.open(archive) as packed:
        for name, path in members.items():
            source = packed.extractfile(name) if packed.getmember(name).isreg() else None
            if source is None:
                raise ValueError(f"{name} must be a file")
            with _arriving(path) as arriving, arriving.open("wb") as file:
                shutil.copyfileobj(source, file)


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirections to https addresses only."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        url = arguments[-1]
        if urlsplit(url).scheme != "https":
            raise OSError(f"it redirects to {url}, which is not https")
        return super().redirect_request(*arguments)


def _require_safe(url: str) -> None:
    parts = urlsplit(url)  # ValueError for an invalid address
    if parts.scheme not in ("https", "file") and (parts.scheme, parts.hostname) not in _LOOPBACK:
        raise ValueError("a URL must begin with https: or file:, or name this machine")


def _download(url: str, arriving: Path, max_bytes: int) -> str:
    """Download ``url`` to ``arriving``; returns its MD5."""
    digest, received = hashlib.md5(usedforsecurity=False), 0
    request = urllib.request.Request(url, headers={"User-Agent": "total-error"})
    opener = urllib.request.build_opener(_OnlyHttps)
    with opener.open(request, timeout=_SILENCE_SECONDS) as answer, arriving.open("wb") as file:
        while block := answer.read(_BLOCK):
            received += len(block)
            if received > max_bytes:
                raise OSError(f"it has more than {max_bytes} bytes")
            digest.update(block)
            file.write(block)
        announced = answer.headers["Content-Length"]  # None if the server does not announce it
        if announced is not None and received < int(announced):
            raise OSError(f"{received} of {announced} bytes received")
    return digest.hexdigest()


def _shown(error: Exception) -> str:
    """The error's text in printable characters; a server may have chosen the text."""
    text = str(error) or type(error).__name__
    if isinstance(error, http.client.HTTPException):  # its text may consist of the server's answer alone
        text = f"it does not speak HTTP ({type(error).__name__}): {text}"
    return "".join(c if c.isprintable() else " " for c in text)[:500]


@contextmanager
def _expecting(archive: Path) -> Iterator[None]:
    """Add the archive's name to errors in its content. System errors, as for a full disk, are not changed."""
    try:
        yield
    except Exception as error:  # archive decoders raise many types of errors
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise ValueError(f"{archive} is not the archive expected: {_shown(error)}") from error


@contextmanager
def _arriving(path: Path) -> Iterator[Path]:
    """Context manager: the path of a file that becomes ``path`` at the end of the block, unless it fails."""
    arriving = path.with_name(f"arriving-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield arriving
        arriving.replace(path)
    finally:
        arriving.unlink(missing_ok=True)
