"""SST-2 from its files: batches, refusals with line numbers, and complete downloads."""

import io
import zipfile
from pathlib import Path

import pytest
import torch
from glue_files import TRAIN, UNITS, VALIDATION, write_rows, write_sst2

import data.text.sst2_download
from compressors.core.randomness import generator
from data.text.sst2 import _draw, read_rows, sst2


def stream(*salt: object) -> torch.Generator:
    return generator(0, *salt)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_sst2(tmp_path)
    return tmp_path


def test_what_a_model_is_told(root: Path) -> None:
    dataset = sst2(root=str(root), max_length=6)
    assert dataset.model_arguments() == {"vocabulary_size": len(UNITS), "num_classes": 2, "max_length": 6}
    assert len(dataset.train) == len(TRAIN)
    assert {name: len(part) for name, part in dataset.held_out.items()} == {"validation": 3}
    assert dataset.facts()["train_sentences"] == len(TRAIN)


def test_held_out_batch_is_cut_to_its_longest_sentence(root: Path) -> None:
    dataset = sst2(root=str(root))
    batch = dataset.held_out_batch("validation", torch.tensor([2, 0]))
    words = [[UNITS[n] for n in row] for row in batch.tokens.tolist()]
    assert words == [["[CLS]", "[UNK]", "[SEP]", "[PAD]"], ["[CLS]", "fine", ".", "[SEP]"]]
    assert batch.mask.tolist() == [[True, True, True, False], [True] * 4]
    assert batch.targets.tolist() == [0, 1]
    assert batch.tokens.dtype == torch.int64


def test_one_pass_reads_every_sentence_once(root: Path) -> None:
    loader = sst2(root=str(root)).loader(2, range(2), 4, stream)
    batches = [batch for step in range(4) for batch in loader.batches(step)]
    rows = [tuple(row[mask].tolist()) for b in batches for row, mask in zip(b.tokens, b.mask, strict=True)]
    assert len(rows) == len(TRAIN) and all(rows.count(row) == 8 for row in rows)


def test_partitions(root: Path) -> None:
    (first, second) = sst2(root=str(root), partition="by_label").loader(2, range(2), None, stream).batches(0)
    assert set(first.targets.tolist()) == {0} and set(second.targets.tolist()) == {1}
    with pytest.raises(ValueError, match=r"data\.partition must be one of"):
        sst2(root=str(root), partition="even")


def test_some_rows_drawn_once_and_for_all(root: Path) -> None:
    whole = [f"{sentence}{number}" for number, (sentence, _) in enumerate(TRAIN)]
    write_rows(root / "glue/SST-2/train.tsv", [(row, 1) for row in whole])
    some, again = (sst2(root=str(root), train_rows=10).train for _ in range(2))
    assert len(some) == 10 and torch.equal(some.tokens, again.tokens)
    sentences, labels = _draw(([f"{number:02}" for number in range(32)], list(range(32))), 10)
    assert sentences == sorted(sentences) and labels == list(map(int, sentences)), "in the order of the file"
    with pytest.raises(
        ValueError, match=r"data\.train_rows must be at most the number of training rows \(32\), got 33"
    ):
        sst2(root=str(root), train_rows=33)
    with pytest.raises(ValueError, match=r"data\.train_rows must be an integer >= 1, got 0"):
        sst2(root=str(root), train_rows=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label\tsentence\nfine\t1\n", r"line 1: the header must be sentence<TAB>label, got 'label"),
        ("", r"line 1: the header must be"),
        ("sentence\tlabel\n", r"train\.tsv has no rows"),
        ("sentence\tlabel\nfine\t1\nfine 1\n", r"line 3: a row must be sentence<TAB>label, got 'fine 1'"),
        ("sentence\tlabel\nfine\t1\t0\n", r"line 2: a row must be sentence<TAB>label"),
        ("sentence\tlabel\nfine\t1\n\ndull\t0\n", r"line 3: a row must be sentence<TAB>label, got ''"),
        ("sentence\tlabel\n  \t1\n", r"line 2: a row must be sentence<TAB>label"),
        ("sentence\tlabel\nfine\t2\n", r"line 2: the label must be 0 or 1, got '2'"),
        ("sentence\tlabel\nfine\t\n", r"line 2: the label must be 0 or 1, got ''"),
    ],
)
def test_malformed_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "train.tsv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_rows(path)


def test_bytes_that_are_no_text_and_foreign_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_bytes(b"sentence\tlabel\r\nfine\t1\r\n")
    assert read_rows(path) == (["fine"], [1])
    path.write_bytes(b"sentence\tlabel\n\xff\t1\n")
    with pytest.raises(ValueError, match=r"train\.tsv is not UTF-8 text"):
        read_rows(path)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"data=sst2: no file .*train\.tsv; data\.download=true"):
        sst2(root=str(tmp_path))
    write_sst2(tmp_path)
    (tmp_path / "bert-base-uncased" / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"no WordPiece vocabulary .*vocab\.txt"):
        sst2(root=str(tmp_path))


def packed(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return content.getvalue()


HONEST = {
    "SST-2/train.tsv": b"sentence\tlabel\n" + b"fine\t1\n" * len(TRAIN),
    "SST-2/dev.tsv": b"sentence\tlabel\n" + b"dull\t0\n" * len(VALIDATION),
    "../../escaped.tsv": b"out",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Path of the archive in place of the download, which must have 32 training and 3 validation rows."""
    archive = tmp_path / "home" / "SST-2.zip"
    archive.parent.mkdir()
    monkeypatch.setattr(data.text.sst2_download, "_SST2", archive.as_uri())
    monkeypatch.setattr(data.text.sst2_download, "_SST2_ROWS", {"train.tsv": 32, "dev.tsv": 3})
    return archive


def test_download(tmp_path: Path, home: Path) -> None:
    home.write_bytes(packed(HONEST))
    folder = tmp_path / "root" / "glue" / "SST-2"
    data.text.sst2_download.fetch_sst2(folder)
    assert {path.name for path in folder.iterdir()} == {"train.tsv", "dev.tsv"}
    assert not list(tmp_path.glob("**/escaped.tsv"))
    assert len(read_rows(folder / "train.tsv")[0]) == 32


@pytest.mark.parametrize(
    "content",
    [
        b"<html>moved</html>",
        packed({"SST-2/train.tsv": HONEST["SST-2/train.tsv"]}),
        packed(HONEST | {"SST-2/dev.tsv": b"sentence\tlabel\nfine\t1\n"}),
    ],
)
def test_download_of_something_else_leaves_nothing(tmp_path: Path, home: Path, content: bytes) -> None:
    home.write_bytes(content)
    folder = tmp_path / "root" / "glue" / "SST-2"
    with pytest.raises(ValueError, match=r"SST-2\.zip"):
        data.text.sst2_download.fetch_sst2(folder)
    assert not list(folder.iterdir())
