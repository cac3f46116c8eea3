"""Bounds on data files: kind, size, line length and encoding; home folders in paths."""

import bz2
import gzip
import os
from pathlib import Path

import pytest
from configs import resolved
from hydra.utils import get_method

from data import files
from data.files import FileBoundError, not_downloaded, open_bounded, path_of, read_lines, require_file
from trainers.config.words import home_expanded


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.mkdir(), lambda path: path.symlink_to("/dev/zero")]
)
def test_only_regular_files_are_opened(make, tmp_path: Path) -> None:
    """Reading a pipe would wait; reading a device would never end."""
    path = tmp_path / "x"
    make(path)
    for read in (require_file, open_bounded, read_lines):
        with pytest.raises(FileBoundError, match=f"{path} must be a regular file"):
            read(path)


def test_size_is_looked_at_first(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    os.truncate(path, 2**40)  # a sparse file uses no block on the disk
    with pytest.raises(FileBoundError, match=f"{path} must have at most 100 bytes, got {2**40}"):
        open_bounded(path, 100)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_archives_unpack_within_bounds(suffix: str, pack, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "_ALWAYS_ALLOWED", 1000)
    path = tmp_path / f"x{suffix}"
    for content in (b"", os.urandom(5000), b"a" * 1000):
        path.write_bytes(pack(content))
        with open_bounded(path) as file:
            assert file.read() == content
    path.write_bytes(pack(bytes(10**6)))
    size = path.stat().st_size
    with open_bounded(path) as file, pytest.raises(FileBoundError, match="got more") as refusal:
        file.read()
    assert str(refusal.value) == f"{path} must contain at most {max(1000, 100 * size)} bytes, got more"
    path.write_bytes(pack(os.urandom(5000))[:-3])
    with open_bounded(path) as file, pytest.raises(FileBoundError, match=f"{path} cannot be read: "):
        file.read()


@pytest.mark.parametrize("block", [2**18, 7, 1])
def test_text_has_lines_and_no_nul(block: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    monkeypatch.setattr(files, "LONGEST_LINE", 10)
    path = tmp_path / "x"
    good = "ten signs.\n\nä\r\n" * 30 + "no end"
    path.write_bytes(good.encode())
    assert read_lines(path) == good.split("\n")
    for bad, problem in (
        (b"a\n" * 40 + b"b\0c\n", "is not text: line 41 holds a NUL"),
        (b"a\n" * 40 + b"b" * 11 + b"\n", "is not text: line 41 has more than 10 bytes"),
        (b"b" * 11, "is not text: line 1 has more than 10 bytes"),
        (b"a\nb\n\xed\xa0\x80\n", "is not UTF-8 text: line 3: invalid continuation byte"),
    ):
        path.write_bytes(bad)
        if block == 2**18 and "more than" in problem:
            continue  # a line that is shorter than a block is not too long
        with pytest.raises(ValueError, match=f"{path} {problem}"):
            read_lines(path)


def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of("data.root", "~/few") == tmp_path / "few"
    assert path_of("data.root", "few/~") == Path("few/~")
    with pytest.raises(ValueError, match=r"data.root must begin with a known home folder"):
        path_of("data.root", "~nobody-here/x")


@pytest.mark.parametrize("typed", ["data/wikitext-2", "data/wikitext-2/raw", "."])
def test_a_folder_that_has_the_file_is_suggested(typed: str, tmp_path: Path) -> None:
    path = tmp_path / "data/wikitext-2/train"
    path.parent.mkdir(parents=True)
    path.touch()
    root = tmp_path / typed
    assert f"; data.root={tmp_path / 'data'} has it" in str(
        not_downloaded("x", root, root / "wikitext-2/train")
    )


def test_a_home_folder_may_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home_expanded("data.root=~/few") == f"data.root={tmp_path}/few"
    for word in ("data.root=few/~", "~data.root", "--help"):
        assert home_expanded(word) == word
    with pytest.raises(ValueError, match=r"data.root must begin with a known home folder"):
        home_expanded("data.root=~nobody-here/x")


@pytest.mark.parametrize(
    "data", ["mnist", "cifar10", "wikitext2", "penn_treebank", "movielens", "libsvm", "sst2"]
)
def test_all_data_look_in_the_home_folder(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = resolved(f"data={data}", "data.root='~/few'")["data"]
    factory = get_method(settings.pop("_target_"))
    with pytest.raises(FileNotFoundError, match=rf"data={data}: no file {tmp_path}/few/.*data.root=DIR"):
        factory(**settings)
