"""Download of published files, and extraction of files from archives.

A download uses https only, also after a redirection, and has a limit on its size and a minimum speed. A
member's name in an archive is never used as a path on disk.
"""

import errno
import hashlib
import http.client
import os
import shutil
import socket
import tarfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from data.files import open_bounded, require_file

MAX_BYTES = 2**30
_SILENCE_SECONDS = 60  # timeout: a server that sends nothing for this long counts as not answering
_SLOWEST = 10_000  # minimum of the average bytes per second, after the first _SILENCE_SECONDS
_BLOCK = 2**16  # bytes
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MOST_BESIDE = 2**28  # bytes of an archive's other members


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
    them. Raises ``OSError`` if the server does not answer, does not use https, redirects to another
    protocol, does not speak HTTP or is too slow, and if the file is incomplete, has more than
    ``max_bytes`` or is refused.
    """
    arriving = target.with_name(f"arriving-{os.getpid()}-{target.name}")
    try:
        _require_safe(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        found = _download(url, arriving, max_bytes)
        if md5 is not None and found != md5:
            raise OSError(f"its MD5 is {found}, not {md5}")
        look_at(arriving)
        arriving.replace(target)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        remedy = ""
        if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
            held = ", ".join(map(str, files or [target]))
            remedy = f"; without a network, data.root=DIR reads the files of a folder that has them: {held}"
        raise OSError(f"data.download: {url} was not downloaded: {_shown(error)}{remedy}") from error
    finally:
        arriving.unlink(missing_ok=True)


def take_from_zip(archive: Path, members: dict[str, Path], max_bytes: int = MAX_BYTES) -> None:
    """Write each member in ``members`` to its path. A file appears only when it is complete.

    Raises ``ValueError`` if ``archive`` is not a zip file, lacks a member, or has one of more than
    ``max_bytes``.
    """
    require_file(archive, max_bytes + _MOST_BESIDE)
    with _expecting(archive), zipfile.ZipFile(archive) as packed:
        for name, path in members.items():
            _require_size(name, packed.getinfo(name).file_size, max_bytes)
            with packed.open(name) as source:  # reads at most the size that was checked
                _write(source, path)


def take_from_tar(archive: Path, members: dict[str, Path], max_bytes: int = MAX_BYTES) -> None:
    """``take_from_zip`` for a .tar.gz file. A member that is a link or a device is refused.

    Reads at most ``max_bytes`` per member plus 256 MiB of the unpacked archive.
    """
    most_bytes = len(members) * max_bytes + _MOST_BESIDE
    with _expecting(archive), open_bounded(archive, most_bytes) as file:
        with tarfile.open(fileobj=file, mode="r|") as packed:
            missing = dict(members)
            for member in packed:
                path = missing.pop(member.name, None)
                if path is None:
                    continue
                if not member.isreg() or member.issparse():
                    raise ValueError(f"{member.name} must be a file")
                _require_size(member.name, member.size, max_bytes)
                _write(packed.extractfile(member), path)
                if not missing:
                    return
        raise ValueError(f"there is no {next(iter(missing))} in it")


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirections to https addresses only."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        answer, url = arguments[1], arguments[-1]
        if urlsplit(url).scheme != "https":
            raise OSError(f"it redirects to {url}, which is not https")
        answer.close()  # else urllib would read the redirection's body, whatever its length
        return super().redirect_request(*arguments)


class _Watch:
    """Closes a connection that is too slow. A socket timeout does not: each received byte restarts it."""

    def __init__(self) -> None:
        self.received, self.too_slow = 0, False
        self._start, self._done = time.monotonic(), threading.Event()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def connect(self, *arguments: Any) -> socket.socket:
        """Replacement of ``socket.create_connection`` in ``http.client`` that registers the connection."""
        opened = socket.create_connection(*arguments)
        before, self._connection = self._connection, opened.dup()
        if before is not None:
            before.close()
        return opened

    def _look(self) -> None:
        while not self._done.wait(_SILENCE_SECONDS / 20):
            if time.monotonic() - self._start > _SILENCE_SECONDS + self.received / _SLOWEST:
                self.too_slow = True
                if self._connection is not None:
                    with suppress(OSError):  # already closed
                        self._connection.shutdown(socket.SHUT_RDWR)


class _Watched(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """HTTP handler whose connections are registered with a ``_Watch``."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.watch = watch

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(partial(self._connection, http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(partial(self._connection, http.client.HTTPSConnection), request)

    def _connection(self, kind: Any, *arguments: Any, **settings: Any) -> http.client.HTTPConnection:
        connection = kind(*arguments, **settings)
        connection._create_connection = self.watch.connect
        return connection


def _require_safe(url: str) -> None:
    parts = urlsplit(url)  # ValueError for an invalid address
    safe = parts.scheme in ("https", "file") or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not safe:
        raise ValueError("a URL must begin with https: or file:, or name this machine")
    if parts.scheme == "file":
        require_file(Path(urllib.request.url2pathname(parts.path)))


def _download(url: str, arriving: Path, max_bytes: int) -> str:
    """Download ``url`` to ``arriving``; returns its MD5."""
    digest = hashlib.md5(usedforsecurity=False)
    request = urllib.request.Request(url, headers={"User-Agent": "total-error"})
    with _Watch() as watch:
        opener = urllib.request.build_opener(_OnlyHttps, _Watched(watch))
        try:
            with opener.open(request, timeout=_SILENCE_SECONDS) as answer, arriving.open("wb") as file:
                expected = _expected_bytes(answer)
                while block := answer.read1(_BLOCK):
                    watch.received += len(block)
                    if watch.received > max_bytes:
                        raise OSError(f"it has more than {max_bytes} bytes")
                    digest.update(block)
                    file.write(block)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if watch.too_slow:
                raise OSError(f"it is too slow: {watch.received} bytes received") from error
            raise
    if watch.too_slow:
        raise OSError(f"it is too slow: {watch.received} bytes received")
    if expected is not None and watch.received != expected:
        raise OSError(f"{watch.received} of {expected} bytes received")
    return digest.hexdigest()


def _expected_bytes(answer: Any) -> int | None:
    """The length that the server announces in bytes, or None."""
    content_length = answer.headers.get("Content-Length")
    if content_length is None or answer.headers.get("Transfer-Encoding") is not None:
        return None
    if not (content_length.isascii() and content_length.isdigit() and len(content_length) < 20):
        raise OSError(f"its Content-Length is {content_length[:40]!r}")
    return int(content_length)


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


def _require_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ValueError(f"{name} must have at most {max_bytes} bytes, got {size}")


def _write(source: Any, path: Path) -> None:
    arriving = path.with_name(f"arriving-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with arriving.open("wb") as target:
            shutil.copyfileobj(source, target)
        arriving.replace(path)
    finally:
        arriving.unlink(missing_ok=True)
