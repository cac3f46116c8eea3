"""Reading of data files in one line of error; home folders in paths."""

import bz2
import gzip
from pathlib import Path

import pytest
from configs import resolved
from hydra.utils import get_method

from data.files import not_downloaded, opened, path_of, read_lines
from trainers.config.words import home_expanded


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_files_are_unpacked(suffix: str, pack, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    for content in (b"", bytes(range(256)) * 30):
        path.write_bytes(pack(content))
        with opened(path) as file:
            assert file.read() == content
    if suffix:
        path.write_bytes(pack(content)[:-3])
        with pytest.raises(ValueError, match=f"{path} cannot be read: "), opened(path) as file:
            file.read()


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match=f"{path} cannot be read: "):
            read_lines(path)


def test_a_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    good = "ten signs.\n\n\u00e4\r\n" * 30 + "no end"
    path.write_text(good, newline="")
    assert read_lines(path) == good.split("\n")
    for bad, problem in (
        (b"a\n" * 40 + b"b\0c\n", "line 41: a NUL"),
        (b"a\nb\n\xed\xa0\x80\n", "line 3: invalid continuation byte"),
    ):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=f"{path} is not UTF-8 text: {problem}"):
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
