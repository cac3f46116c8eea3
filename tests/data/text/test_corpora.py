"""Corpora from small files, from Python's reference and, if $DATA_DIR has them, from the real files."""

import hashlib
import os
import re
import zipfile
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from data.text import corpora
from data.text.corpora import Corpus, penn_treebank, python_docs, wikitext2

ROOT = Path(os.environ.get("DATA_DIR", ".data"))
WIKITEXT = {
    f"wiki.{split}.tokens": f" \n = {split} = \n \n a <unk> b .\n" for split in ("train", "valid", "test")
}
PENN = {f"ptb.{split}.txt": f" {split} a <unk> N\n b a\n" for split in ("train", "valid", "test")}


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())


def test_wikitext_keeps_every_line(tmp_path: Path) -> None:
    write(tmp_path / "wikitext-2", WIKITEXT)
    corpus = wikitext2(str(tmp_path))
    assert corpus.name == "wikitext2"
    assert corpus.validation == [" ", " = valid = ", " ", " a <unk> b ."]
    assert [lines[1] for lines in corpus[1:4]] == [" = train = ", " = valid = ", " = test = "]


def test_penn_treebank(tmp_path: Path) -> None:
    write(tmp_path / "penn-treebank", PENN)
    assert penn_treebank(str(tmp_path)).test == [" test a <unk> N", " b a"]


def test_line_ends_are_those_of_files_alone(tmp_path: Path) -> None:
    write(tmp_path / "penn-treebank", PENN | {"ptb.test.txt": "a\x85b\u2028c\r\n\r\nd"})
    assert penn_treebank(str(tmp_path)).test == ["a\x85b\u2028c", "", "d"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is empty"), (b" \n \n", "is empty"), (b"a\nb\n\xff\n", "is not UTF-8 text: line 3")],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, problem: str) -> None:
    write(tmp_path / "penn-treebank", PENN)
    (tmp_path / "penn-treebank" / "ptb.valid.txt").write_bytes(content)
    with pytest.raises(ValueError, match=f"ptb.valid.txt {problem}"):
        penn_treebank(str(tmp_path))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both corpora in the format of their servers."""
    home = tmp_path / "home"
    write(home, PENN)
    with zipfile.ZipFile(home / "w.zip", "w") as archive:
        for name, text in WIKITEXT.items():
            archive.writestr(f"wikitext-2/{name}", text)
        archive.writestr("../escaped", "x")
    md5 = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in home.iterdir()}
    monkeypatch.setattr(corpora, "_WIKITEXT_2", (f"file://{home}/w.zip", md5.pop("w.zip")))
    monkeypatch.setattr(corpora, "_PENN_TREEBANK_HOME", f"file://{home}")
    monkeypatch.setattr(corpora, "_PENN_TREEBANK_MD5", {name: md5[name] for name in PENN})
    return home


def test_downloads(home: Path, tmp_path: Path) -> None:
    for factory, folder, files in (
        (wikitext2, "wikitext-2", WIKITEXT),
        (penn_treebank, "penn-treebank", PENN),
    ):
        corpus = factory(str(tmp_path / "root"), download=True)
        assert len(corpus.train) > 1
        assert {p.name: p.read_text() for p in (tmp_path / "root" / folder).iterdir()} == files
    assert not list(tmp_path.rglob("escaped"))


def test_damaged_download_leaves_nothing(home: Path, tmp_path: Path) -> None:
    (home / "ptb.train.txt").write_text("another text")
    (home / "w.zip").write_bytes(b"half an archive")
    for factory in (wikitext2, penn_treebank):
        with pytest.raises(OSError, match=r"data.download: file://.* was not downloaded: its MD5 is"):
            factory(str(tmp_path / "root"), download=True)
    (home / "w.zip").unlink()
    with pytest.raises(OSError, match="was not downloaded"):
        wikitext2(str(tmp_path / "root"), download=True)
    assert not [path for path in (tmp_path / "root").rglob("*") if path.is_file()]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def test_python_docs_are_the_topics() -> None:
    corpus = python_docs()
    assert isinstance(corpus, Corpus)
    lines = [line for split in corpus[1:4] for line in split]
    assert len(set(lines)) == len(lines)  # no paragraph in two splits
    everything = " ".join(" ".join(words(topics[topic])) for topic in topics)
    assert all(" ".join(words(line)) in everything for line in lines)
    assert {word for line in lines for word in words(line)} == set(words(everything))


def test_python_docs_are_split_by_topic_at_about_a_tenth() -> None:
    corpus = python_docs()
    sizes = [sum(map(len, split)) for split in corpus[1:4]]
    for held_out in sizes[1:]:
        assert 0.08 < held_out / sum(sizes) <= 0.1
    home = {line: number for number, split in enumerate(corpus[1:4]) for line in split}
    first_seen = {}
    for topic in sorted(topics):
        for line in (" ".join(part.split()) for part in re.split(r"\n\s*\n", topics[topic])):
            first_seen.setdefault(line, topic)
    splits_of = {}
    for line, topic in first_seen.items():
        if line in home:
            splits_of.setdefault(topic, set()).add(home[line])
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert {0, 1, 2} == set().union(*splits_of.values())


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "wikitext-2").is_dir(), reason="no WikiText-2: data.download=true fetches it")
def test_real_wikitext() -> None:
    from data.text.language_modelling import wikitext2 as dataset

    found = dataset(root=str(ROOT))
    assert [len(found.train), len(found.validation), len(found.test)] == [2_088_628, 217_646, 245_569]
    assert found.num_words == 33_278
    assert dataset(root=str(ROOT), lowercase=True).num_words == 28_912


@pytest.mark.slow
@pytest.mark.skipif(
    not (ROOT / "penn-treebank").is_dir(), reason="no Penn Treebank: data.download=true fetches it"
)
def test_real_penn_treebank() -> None:
    from data.text.language_modelling import penn_treebank as dataset

    found = dataset(root=str(ROOT))
    assert [len(found.train), len(found.validation), len(found.test)] == [929_589, 73_760, 82_430]
    assert found.num_words == 10_000
