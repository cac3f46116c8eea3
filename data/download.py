"""Download of complete published files, and extraction of files from archives.

Only https, also where a home redirects to, no more bytes than a file may have, and no slower than a home
that means it. What an archive calls its members never becomes a path on this disk.
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
_SILENCE_SECONDS = 60  # a home that says nothing for so long does not answer
_SLOWEST = 10_000  # bytes a second on average, after the first silence
_BLOCK = 2**16  # bytes
_HERE = ("localhost", "127.0.0.1", "::1")
_MOST_BESIDE = 2**28  # bytes of an archive that are not members asked for


def fetch(
    url: str,
    target: Path,
    md5: str | None,
    *,
    max_bytes: int = MAX_BYTES,
    look_at: Callable[[Path], object] = lambda arrived: None,
    files: Sequence[Path] = (),
) -> None:
    """Download ``url`` to ``target``, which appears there only if its MD5 is the published one.

    Without one, None, it is for ``look_at`` to raise ``ValueError`` for what came, or for the caller.
    ``files`` are those made of it, which the error for a home that is not reached names.
    Raises ``OSError`` for a home that does not answer, one that is not or leaves https, says what is no
    HTTP or is too slow, and a file that did not arrive whole or has more than ``max_bytes``.
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
        raise OSError(f"data.download: {url} did not arrive whole: {_shown(error)}{remedy}") from error
    finally:
        arriving.unlink(missing_ok=True)


def take_from_zip(archive: Path, members: dict[str, Path], max_bytes: int = MAX_BYTES) -> None:
    """Write each member that is named to its path, whole or not at all, and nothing else.

    Raises ``ValueError`` for what is no zip file, lacks a member, or has one of more than ``max_bytes``.
    """
    require_file(archive, max_bytes + _MOST_BESIDE)
    with _expecting(archive), zipfile.ZipFile(archive) as packed:
        for name, path in members.items():
            _require_size(name, packed.getinfo(name).file_size, max_bytes)
            with packed.open(name) as source:  # which ends after that many bytes
                _write(source, path)


def take_from_tar(archive: Path, members: dict[str, Path], max_bytes: int = MAX_BYTES) -> None:
    """``take_from_zip`` for a .tar.gz file; a link or device in a member's place is refused.

    Of its whole content no more is read than the members may have, and 256 MiB.
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
    """Follows redirections to https addresses alone."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        answer, url = arguments[1], arguments[-1]
        if urlsplit(url).scheme != "https":
            raise OSError(f"it leads to {url}, which is not https")
        answer.close()  # or urllib would read what comes with the redirection, however long
        return super().redirect_request(*arguments)


class _Watch:
    """Ends a connection that is too slow. A timeout does not: every byte that comes starts it anew."""

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
        """What ``http.client`` opens its connections by."""
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
                    with suppress(OSError):  # it ended by itself
                        self._connection.shutdown(socket.SHUT_RDWR)


class _Watched(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Connections that are watched."""

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
    parts = urlsplit(url)  # ValueError for what is none
    safe = parts.scheme in ("https", "file") or (parts.scheme == "http" and parts.hostname in _HERE)
    if not safe:
        raise ValueError("an address must be https (or file, or on this machine)")
    if parts.scheme == "file":
        require_file(Path(urllib.request.url2pathname(parts.path)))


def _download(url: str, arriving: Path, max_bytes: int) -> str:
    """Write what is at ``url`` to a file; its MD5."""
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
                raise OSError(f"it is too slow: {watch.received} bytes came") from error
            raise
    if watch.too_slow:
        raise OSError(f"it is too slow: {watch.received} bytes came")
    if expected is not None and watch.received != expected:
        raise OSError(f"{watch.received} of {expected} bytes came")
    return digest.hexdigest()


def _expected_bytes(answer: Any) -> int | None:
    """How many bytes are promised, None where that is not said."""
    said = answer.headers.get("Content-Length")
    if said is None or answer.headers.get("Transfer-Encoding") is not None:
        return None
    if not (said.isascii() and said.isdigit() and len(said) < 20):
        raise OSError(f"its Content-Length is {said[:40]!r}")
    return int(said)


def _shown(error: Exception) -> str:
    """What went wrong in printable characters, of which a stranger may have chosen any."""
    text = str(error) or type(error).__name__
    if isinstance(error, http.client.HTTPException):  # whose text may be nothing but what came
        text = f"it does not speak HTTP ({type(error).__name__}): {text}"
    return "".join(c if c.isprintable() else " " for c in text)[:500]


@contextmanager
def _expecting(archive: Path) -> Iterator[None]:
    """Name the archive in what goes wrong with it; a full disk and its like keep their own error."""
    try:
        yield
    except Exception as error:  # decoders of archives raise whatever comes to them
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
