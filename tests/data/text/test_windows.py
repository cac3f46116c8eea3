"""Windows of a text: their tokens and bytes, bits per byte, text files, refusals."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compressors.core.randomness import generator
from data.text.corpora import Corpus
from data.text.language_modelling import text, wikitext2
from data.text.tokens import coding
from data.text.windows import WindowDataset, window_dataset

LINES = ["a b a", "", "für b  c"]
CORPUS = Corpus("few", LINES * 20, LINES, LINES * 2)
SIZE = len("\n".join([*LINES, ""]).encode())


def build(**settings: object) -> WindowDataset:
    return window_dataset(CORPUS, tokenize=str.split, extra_facts={}, **{"length": 4} | settings)


@pytest.mark.parametrize("kind", ["byte", "bpe", "word"])
def test_every_token_is_a_target_once_and_stands_for_its_bytes(kind: str) -> None:
    data = build(tokens=kind)
    for name, lines in (("validation", LINES), ("test", LINES * 2)):
        windows = data.held_out[name]
        real = windows.targets >= 0
        ids = coding(kind, CORPUS.train, None, str.split).encode(lines).ids
        assert torch.equal(windows.targets[real], ids)
        assert torch.equal(windows.inputs[real][1:], ids[:-1])
        assert real.flatten().sort(descending=True).values.tolist() == real.flatten().tolist()
        assert int(windows.num_bytes.sum()) == SIZE * len(lines) // len(LINES)
    assert data.held_out["test"].inputs[0, 0] == ids[-1]  # both are line feeds
    assert (data.train.targets >= 0).all()
    assert (
        data.facts()["train_windows"]
        == len(coding(kind, CORPUS.train, None, str.split).encode(CORPUS.train).ids) // 4
    )


def test_tokens_by_hand() -> None:
    byte = build(tokens="byte").held_out["validation"]
    assert bytes(byte.targets[byte.targets >= 0].tolist()) == "a b a\n\nfür b  c\n".encode()
    word = build(tokens="word", length=9).held_out["validation"]
    # 0 <unk>, 1 <eos>, 2 b, 3 a, 4 c, 5 für: a and b have the same frequency
    assert word.targets.tolist() == [[2, 3, 2, 1, 1, 5, 3, 4, 1]]
    assert build(tokens="word", lowercase=True).num_tokens == 6


def test_byte_pairs_are_the_frequent_ones_and_give_the_text_back() -> None:
    data = build(tokens="bpe")
    assert 256 < data.num_tokens < 300
    assert build(tokens="bpe", vocabulary_size=258).num_tokens == 258
    assert len(data.held_out["test"]) < len(build().held_out["test"])
    other = window_dataset(
        Corpus("x", ["a"] * 9, ["\u4e2d\x00\x85 z"], ["b"]),
        tokenize=str.split,
        extra_facts={},
        tokens="bpe",
        length=2,
    )
    assert int(other.held_out["validation"].num_bytes.sum()) == 9  # bytes that the training split lacks


class Table(nn.Module):
    """A model whose logits do not depend on the text."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.linspace(-1, 1, size))

    def forward(self, tokens: Tensor, hidden: None) -> tuple[Tensor, tuple[()]]:
        return self.logits.expand(*tokens.shape, -1), ()


@pytest.mark.parametrize("chunk", [1, 3])
def test_measures_are_those_of_a_plain_computation(chunk: int) -> None:
    data = build(tokens="bpe")
    model, task = Table(data.num_tokens), data.task
    parts = torch.arange(len(data.held_out["validation"])).split(chunk)
    sums = sum(task.measure(model, data.held_out_batch("validation", part)) for part in parts)
    targets = data.held_out["validation"].targets
    targets = targets[targets >= 0].long()
    total = F.cross_entropy(model.logits.expand(len(targets), -1), targets, reduction="sum").item()
    found = task.summarise(sums)
    assert found["loss"] == pytest.approx(total / len(targets), rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(total / len(targets)), rel=1e-6)
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / SIZE, rel=1e-6)
    (batch,) = data.loader(1, range(1), None, partial(generator, 0)).batches(0)
    loss, memory = task.loss(model, batch, None)
    expected = F.cross_entropy(model.logits.expand(batch.targets.numel(), -1), batch.targets.flatten())
    assert memory is None and loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_words_have_no_bits_per_byte() -> None:
    """With two special words and "b" alone, nearly every word would be a cheap ``<unk>``."""
    data = build(tokens="word", vocabulary_size=3)
    sums = data.task.measure(Table(data.num_tokens), data.held_out_batch("test", torch.arange(2)))
    assert data.task.summarise(sums).keys() == {"loss", "perplexity"}
    assert not build(tokens="byte", lowercase=True).task.gives_text_back


def test_workers_share_the_windows_and_read_them_in_random_order() -> None:
    data = build()
    batches = data.loader(2, range(2), None, partial(generator, 0)).batches(0)
    read = torch.cat([batch.targets for batch in batches])
    assert sorted(read.tolist()) == sorted(data.train.targets.tolist()) != read.tolist()
    assert torch.equal(batches[0].inputs[:, 1:], batches[0].targets[:, :-1])


def test_text_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"a{number:02}\n" for number in range(40)))
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c.md").write_bytes(b"".join(b"b%02d\r\n" % number for number in range(20)))
    files = ["a.txt", str(tmp_path / "b/c.md")]
    data = text(files=files, root=str(tmp_path), tokens="word", length=2)
    # The words of each training line, with the end of line
    assert (len(data.train), len(data.held_out["validation"]), len(data.held_out["test"])) == (54, 3, 3)
    assert text(files=files, root=str(tmp_path), held_out=0.5, length=2).facts()["validation_bytes"] == 4 * 15
    streams = text(files=files, root=str(tmp_path), objective="next_token", evaluation_columns=2)
    assert streams.facts()["train_tokens"] == 2 * 54


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"files": "a.txt"}, "data.files must be a list of paths, got 'a.txt'"),
        ({"files": []}, "data.files must be a list of paths, got "),
        ({"files": ["b.txt"]}, "data=text: no file .*/b.txt; data.files has paths relative to data.root"),
        ({"files": ["empty"]}, "empty is empty: it has no words"),
        ({"files": ["one"]}, "the validation split of data.files must have a line; data.held_out is 0.1"),
        ({"held_out": 1}, r"data.held_out must be in \(0, 1\), got 1"),
        ({"tokens": "letters"}, "data.tokens must be one of byte, bpe, word, got 'letters'"),
        (
            {"tokens": "byte", "vocabulary_size": 9},
            "data.vocabulary_size has no effect with data.tokens=byte",
        ),
        (
            {"tokens": "bpe", "vocabulary_size": 255},
            "data.vocabulary_size must be an integer >= 256, got 255",
        ),
        ({"tokens": "word", "vocabulary_size": 2}, "data.vocabulary_size must be an integer >= 3, got 2"),
        ({"length": 0}, "data.length must be an integer >= 1, got 0"),
        ({"length": 1000}, "the training split must fill at least one window of data.length tokens"),
        ({"lowercase": "no"}, "data.lowercase must be true or false, got 'no'"),
        ({"partition": "by_label"}, "data.partition must be iid or contiguous .* got 'by_label'"),
        ({"bptt": 30}, "data.bptt has no effect with data.objective=windows"),
        ({"objective": "next_token", "tokens": "byte"}, "data.tokens has no effect with data.objective=next"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str, tmp_path: Path) -> None:
    for name, content in (("a.txt", "a b\n" * 100), ("empty", " \n"), ("one", "a\n")):
        (tmp_path / name).write_text(content)
    error = FileNotFoundError if settings.get("files") == ["b.txt"] else ValueError
    with pytest.raises(error, match=message):
        text(**{"files": ["a.txt"], "root": str(tmp_path)} | settings)


def test_other_corpora_have_windows_too(tmp_path: Path) -> None:
    (tmp_path / "wikitext-2").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "wikitext-2" / f"wiki.{split}.tokens").write_text(" = a = \n b <unk> c\n")
    found = wikitext2(root=str(tmp_path), objective="windows", length=3, bptt=None)
    assert isinstance(found, WindowDataset) and found.facts()["test_bytes"] == 19
