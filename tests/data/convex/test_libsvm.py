"""LIBSVM files: reading, refusals, download."""

import bz2
import functools
import gzip
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from libsvm_files import write_rows

from compressors.core.randomness import generator as seeded
from data.convex import libsvm as libsvm_module
from data.convex.libsvm import libsvm, read


def dense(dataset) -> torch.Tensor:
    return torch.from_numpy(dataset.features.toarray())


def test_features_and_labels_by_hand(tmp_path: Path) -> None:
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "hand").write_text("2 1:0.5 3:-2\n1 2:1e1 # a comment\n\n2 3:4\n1\n")
    dataset = libsvm(name="hand", root=str(tmp_path))
    assert dense(dataset).tolist() == [[0.5, 0, -2], [0, 10, 0], [0, 0, 4], [0, 0, 0]]
    assert dataset.labels.tolist() == [1, -1, 1, -1]
    assert dataset.labels.dtype == torch.float64
    facts = dataset.facts()
    assert facts["labels"] == {"1": -1, "2": 1}
    assert (facts["rows"], facts["features"], facts["share_not_zero"]) == (4, 3, 4 / 12)


@pytest.mark.parametrize("labels", [(-1, 1), (0, 1), (1, 2), (-3.5, 7)])
def test_labels_of_any_two_values(tmp_path: Path, labels: tuple) -> None:
    write_rows(tmp_path, "few", 30, 4, labels=labels)
    dataset = libsvm(name="few", root=str(tmp_path))
    reference = write_rows(tmp_path, "reference", 30, 4)
    assert torch.equal(dataset.labels, torch.from_numpy(read(reference)[1]))
    assert dataset.label_values == tuple(map(float, labels))


@pytest.mark.parametrize(("suffix", "opener"), [(".bz2", bz2.open), (".gz", gzip.open)])
def test_compressed_files_hold_the_same(tmp_path: Path, suffix: str, opener) -> None:
    plain = write_rows(tmp_path, "few", 20, 3)
    packed = plain.with_name("packed" + suffix)
    with opener(packed, "wb") as file:
        file.write(plain.read_bytes())
    for name in ("packed", "packed" + suffix):
        assert torch.equal(
            dense(libsvm(name=name, root=str(tmp_path))), torch.from_numpy(read(plain)[0].toarray())
        )


RULE = "must be LABEL INDEX:VALUE ... with ascending indices and finite numbers"
BAD = {
    "1 1:2\n-1 2147483647:1\n": "has 2147483647 features and 2 entries: an index is too large",
    "1 1:2\n-1 2147483648:1\n": f"line 2 {RULE}, got '-1 2147483648:1'",
    "1 1:2\nx 1:3\n": f"line 2 {RULE}, got 'x 1:3'",
    "1 1:2\n-1 1:3\n1 1=4\n": f"line 3 {RULE}, got '1 1=4'",
    "1 1:2\n-1 a:3\n": f"line 2 {RULE}, got '-1 a:3'",
    "1 1:2\n-1 2:1 2:3\n": f"line 2 {RULE}, got '-1 2:1 2:3'",
    "1 1:2\n-1 3:1 2:3 # x\n": f"line 2 {RULE}, got '-1 3:1 2:3 # x'",
    "1 1:two\n-1 2:1\n": f"line 1 {RULE}, got '1 1:two'",
    "1 1:1\n-1 2:nan\n": f"line 2 {RULE}, got '-1 2:nan'",
    "1 1:1\ninf 2:1\n": f"line 2 {RULE}, got 'inf 2:1'",
    "1 1:1\n-1 -2:1\n": f"line 2 {RULE}, got '-1 -2:1'",
    "1,1:1\n-1,2:1\n": f"line 1 {RULE}, got '1,1:1'",
    "": "it has no rows",
    "1\n-1\n": "it has no features",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_not_libsvm_says_the_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "bad").write_text(text)
    with pytest.raises(ValueError, match=re.escape(BAD[text])):
        libsvm(name="bad", root=str(tmp_path))


@pytest.mark.parametrize(("labels", "shown"), [((1, 1), "got 1: 1"), ((1, 2, 3), "got 3: 1, 2, 3")])
def test_label_sets_that_are_not_two_values(tmp_path: Path, labels: tuple, shown: str) -> None:
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "labels").write_text("".join(f"{label} 1:1\n" for label in labels))
    with pytest.raises(ValueError, match=f"must have labels of two values, {shown}"):
        libsvm(name="labels", root=str(tmp_path))


def test_a_known_name_has_a_known_shape(tmp_path: Path) -> None:
    write_rows(tmp_path, "madelon", 20, 5)
    with pytest.raises(ValueError, match="20 rows and 5 features, but madelon has 2000 and 500"):
        libsvm(name="madelon", root=str(tmp_path))


@pytest.mark.parametrize("name", ["", "..", "a/b", "../few", "/etc/passwd", None, 3])
def test_name_must_be_that_of_a_file(tmp_path: Path, name: object) -> None:
    with pytest.raises(ValueError, match=r"data\.name must be the name of a file"):
        libsvm(name=name, root=str(tmp_path))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[str]:
    """A server of the files in tmp_path/home/libsvm."""
    folder = tmp_path / "home" / "libsvm"
    folder.mkdir(parents=True)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_many_features_with_as_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libsvm_module, "_MOST_FEATURES", 3)
    (tmp_path / "few").write_text("1 1:1 2:1 3:1\n-1 4:1\n")
    assert read(tmp_path / "few")[0].shape == (2, 4)
    (tmp_path / "few").write_text("1 1:1 2:1 3:1\n-1 5:1\n")
    with pytest.raises(ValueError, match="has 5 features and 4 entries: an index is too large"):
        read(tmp_path / "few")


def test_rows_with_their_zeros_must_fit(tmp_path: Path) -> None:
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "wide").write_text("1 4000000:1\n-1 2:1\n" * 300)
    dataset = libsvm(name="wide", root=str(tmp_path), replacement=True)
    with pytest.raises(ValueError, match=r"trainer\.batch_size=300000 takes 1.79e\+04 GiB of memory"):
        dataset.loader(2, range(2), 300_000, functools.partial(seeded, 0))


def test_download_fetches_once(tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = write_rows(tmp_path / "home", "few", 20, 3)
    root = tmp_path / "root"
    first = libsvm(name="few", root=str(root), download=True, home=home)
    assert torch.equal(dense(first), torch.from_numpy(read(plain)[0].toarray()))
    assert [path.name for path in (root / "libsvm").iterdir()] == ["few"]
    monkeypatch.setattr(libsvm_module, "fetch", None)  # a second download would fail
    libsvm(name="few", root=str(root), download=True, home=home)


@pytest.mark.parametrize("name", ["gisette_scale", "rcv1_train.binary"])
def test_download_knows_what_lies_packed_at_home(tmp_path: Path, home: str, monkeypatch, name: str) -> None:
    plain = write_rows(tmp_path / "home", name, 20, 3)
    plain.with_name(f"{name}.bz2").write_bytes(bz2.compress(plain.read_bytes()))
    monkeypatch.setattr(libsvm_module, "SHAPES", {name: (20, 3)})
    libsvm(name=name, root=str(tmp_path / "root"), download=True, home=home)
    assert (tmp_path / "root" / "libsvm" / f"{name}.bz2").is_file()


def test_download_of_rubbish_leaves_nothing(tmp_path: Path, home: str) -> None:
    (tmp_path / "home" / "libsvm" / "rubbish").write_text("<html>not found</html>")
    for name in ("rubbish", "not_there"):
        with pytest.raises(OSError, match=rf"{home}/{name} was not downloaded"):
            libsvm(name=name, root=str(tmp_path / "root"), download=True, home=home)
    assert list((tmp_path / "root" / "libsvm").iterdir()) == []


@pytest.mark.parametrize("flag", ["download", "replacement"])
def test_flags(tmp_path: Path, flag: str) -> None:
    with pytest.raises(ValueError, match=rf"data\.{flag} must be true or false, got 1"):
        libsvm(name="few", root=str(tmp_path), **{flag: 1})
