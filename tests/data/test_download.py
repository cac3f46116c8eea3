"""Downloads: refused addresses, redirections, sizes, and paths inside archives."""

import errno
import hashlib
import http.server
import io
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from configs import CONF, resolved

from data.download import fetch, take_from_tar, take_from_zip
from trainers.config.errors import ConfigError
from trainers.config.instantiation import make


@pytest.fixture
def server() -> Iterator[str]:
    """A server: /whole has 1,000 bytes, /short sends half of its length, /away redirects."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302 if self.path == "/away" else 200)
            if self.path == "/away":
                self.send_header("Location", "/whole")  # by http, which is refused after a redirection
            if self.path == "/short":
                self.send_header("Content-Length", "2000")
            self.end_headers()
            if self.path != "/away":
                self.wfile.write(bytes(1000))

        def log_message(self, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_whole(server: str, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "x"
    fetch(f"{server}/whole", target, hashlib.md5(bytes(1000)).hexdigest(), max_bytes=1000)
    assert target.read_bytes() == bytes(1000) and len(list(target.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("path", "most", "problem"),
    [
        ("/short", 5000, "1000 of 2000 bytes received"),
        ("/whole", 999, "it has more than 999 bytes"),
        ("/away", 5000, "/whole, which is not https"),
    ],
)
def test_refused(server: str, tmp_path: Path, path: str, most: int, problem: str) -> None:
    with pytest.raises(OSError, match=f"data.download: {server}{path} was not downloaded: .*{problem}"):
        fetch(f"{server}{path}", tmp_path / "x", None, max_bytes=most)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "url", ["http://example.org/x", "ftp://example.org/x", "x", "data:,x", "//example.org/x"]
)
def test_addresses_are_https(url: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="a URL must begin with https"):
        fetch(url, tmp_path / "x", None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x00\xff garbage\r\n\r\n", "it does not speak HTTP"),
        (b"", "Remote end closed connection"),
        (b"HTTP/1.1 404 Not \x1b[31mFound\r\n\r\n", "404"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc", "IncompleteRead"),
    ],
)
def test_a_server_that_fails_is_one_line(answer: bytes, said: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(2**16)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(OSError, match=f"data.download: {url} was not downloaded: .*{said}") as caught:
            fetch(url, tmp_path / "x", None)
    assert str(caught.value).isprintable() and not list(tmp_path.iterdir())


def tar(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, to: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, to
    return info


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_only_files_come_out_of_a_tar(kind: bytes, tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", member("in/x", kind, to="/etc/passwd"))
    with pytest.raises(ValueError, match=r"a\.tar\.gz is not the archive expected: in/x must be a file"):
        take_from_tar(archive, {"in/x": tmp_path / "o" / "x"})
    assert not (tmp_path / "o").exists()


def test_what_is_not_named_stays_in_the_archive(tmp_path: Path) -> None:
    names = ("../outside", f"{tmp_path}/absolute", "in/x", "in/y")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, bytes(5))
    tar(tmp_path / "a.tar.gz", *(member(name, size=5) for name in names))
    for take, suffix in ((take_from_zip, "zip"), (take_from_tar, "tar.gz")):
        take(tmp_path / f"a.{suffix}", {"in/x": tmp_path / suffix / "z"})
        assert [path.name for path in (tmp_path / suffix).iterdir()] == ["z"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.zip", "a.tar.gz", "zip", "tar.gz"}


@pytest.mark.parametrize(("take", "suffix"), [(take_from_zip, "zip"), (take_from_tar, "tar.gz")])
def test_another_archive_is_refused(take, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x", bytes(10))
    else:
        tar(path, member("x", size=10))
    with pytest.raises(ValueError, match="is not the archive expected"):
        take(path, {"y": tmp_path / "y"})
    path.write_bytes(b"rubbish")
    with pytest.raises(ValueError, match="is not the archive expected"):
        take(path, {"x": tmp_path / "x"})
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


FILES = {  # files below data.root of the datasets that can be downloaded
    "cifar10": "cifar-10-batches-bin/data_batch_1.bin",
    "cifar100": "cifar-100-binary/train.bin",
    "fashion_mnist": "FashionMNIST/raw/t10k-labels-idx1-ubyte",
    "libsvm": "libsvm/madelon",
    "mnist": "MNIST/raw/t10k-labels-idx1-ubyte",
    "movielens": "ml-100k/u.data",
    "penn_treebank": "penn-treebank/ptb.test.txt",
    "sst2": "glue/SST-2/dev.tsv",
    "wikitext2": "wikitext-2/wiki.test.tokens",
}


def test_every_dataset_that_can_be_downloaded_is_listed() -> None:
    downloaded = {path.stem for path in (CONF / "data").glob("*.yaml") if "\ndownload:" in path.read_text()}
    assert set(FILES) == downloaded


@pytest.mark.parametrize(
    "problem",
    [socket.gaierror(-2, "Name or service not known"), OSError(errno.ENETUNREACH, "Network is unreachable")],
    ids=["no name", "no route"],
)
@pytest.mark.parametrize("data", FILES)
def test_without_a_network_the_files_of_every_dataset_are_named(
    data: str, problem: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(socket, "create_connection", no_network)
    settings = resolved(f"data={data}", "data.download=true")["data"] | {"root": str(tmp_path)}
    with pytest.raises(
        ConfigError, match=r"without a network, copy the files to these paths, or give a folder"
    ) as caught:
        make(settings)
    assert str(tmp_path / FILES[data]) in str(caught.value).replace(",", " ").split()
    assert str(caught.value).isprintable()
