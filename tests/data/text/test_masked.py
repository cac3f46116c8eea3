"""Masked units: number, replacement, random generator."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from glue_files import UNITS, write_vocabulary
from torch import Tensor, nn

from compressors.core.randomness import generator
from data.text.corpora import Corpus
from data.text.masked import MaskedBatch, MaskedDataset, masked_dataset
from data.text.wordpiece import END, MASK, START, UNKNOWN

LINES = ["a dull film .", "", "playfully un a", "<unk> fine film ."] * 60
CORPUS = Corpus("few", LINES, LINES[:40], LINES[:80])


def stream(*salt: object) -> torch.Generator:
    return generator(0, *salt)


def build(tmp_path: Path, **settings: object) -> MaskedDataset:
    vocabulary = str(write_vocabulary(tmp_path))
    return masked_dataset(CORPUS, **{"vocabulary": vocabulary, "max_length": 12} | settings)


def test_blocks_hold_the_running_text(tmp_path: Path) -> None:
    """Four lines have 13 units, one of them the corpus's <unk>; a block has 10 units."""
    dataset = build(tmp_path)
    assert len(dataset.train) == 60 * 13 // 10
    first = [START, "a", "dull", "film", ".", "play", "##ful", "##ly", "un", "a", UNKNOWN, END]
    second = [START, "fine", "film", ".", "a", "dull", "film", ".", "play", "##ful", "##ly", END]
    assert [[UNITS[n] for n in row] for row in dataset.train[:2].tolist()] == [first, second]
    assert dataset.model_arguments() == {"vocabulary_size": len(UNITS), "masked": True, "max_length": 12}
    assert {name: len(part) for name, part in dataset.held_out.items()} == {"validation": 13, "test": 26}


def test_proportions(tmp_path: Path) -> None:
    """15 % of a block's units are chosen; 80 % of them become [MASK], 10 % a random unit, 10 % stay."""
    dataset = build(tmp_path, max_length=102)
    blocks = torch.full((2000, 102), UNITS.index("film"))
    blocks[:, 0], blocks[:, -1] = UNITS.index(START), UNITS.index(END)
    batch = dataset.mask(blocks, torch.Generator().manual_seed(1))
    assert batch.positions.shape == (2000, 15)
    assert (batch.positions.diff(dim=1) > 0).all(), "each position once"
    assert batch.positions.min() == 1 and batch.positions.max() == 100
    asked = torch.zeros(102).scatter_add(0, batch.positions.flatten(), torch.ones(30_000))
    assert asked[1:-1] == pytest.approx([300] * 100, abs=80)
    assert (batch.targets == UNITS.index("film")).all()
    shown = batch.tokens.gather(1, batch.positions)
    shares = torch.bincount(shown.flatten(), minlength=len(UNITS)) / 30_000
    by_chance = 0.1 / len(UNITS)
    assert shares[UNITS.index(MASK)] == pytest.approx(0.8 + by_chance, abs=0.01)
    assert shares[UNITS.index("film")] == pytest.approx(0.1 + by_chance, abs=0.01)
    assert shares[UNITS.index("dull")] == pytest.approx(by_chance, abs=0.004)
    untouched = torch.ones_like(blocks, dtype=torch.bool).scatter(1, batch.positions, False)
    assert torch.equal(batch.tokens[untouched], blocks[untouched])


def same(one: MaskedBatch, other: MaskedBatch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_training_draws_belong_to_step_and_worker(tmp_path: Path) -> None:
    dataset = build(tmp_path)
    everyone = dataset.loader(4, range(4), 5, stream)
    assert everyone.epochs_per_step == 20 / 78
    for worker in range(4):
        alone = dataset.loader(4, range(worker, worker + 1), 5, stream)
        for step in (3, 0, 1):
            assert same(alone.batches(step)[0], everyone.batches(step)[worker])
    first, later = (dataset.loader(1, range(1), 78, stream).batches(step)[0] for step in (0, 1))
    order = [batch.tokens.scatter(1, batch.positions, batch.targets) for batch in (first, later)]
    assert sorted(order[0].tolist()) == sorted(order[1].tolist()), "the same text"
    assert sorted(first.positions.tolist()) != sorted(later.positions.tolist()), "masked anew"


def test_held_out_blocks_are_always_masked_alike(tmp_path: Path) -> None:
    one, other = build(tmp_path), build(tmp_path).to(torch.device("cpu"))
    whole = one.held_out_batch("test", torch.arange(26))
    parts = [other.held_out_batch("test", part) for part in torch.arange(26).split(7)]
    assert same(whole, MaskedBatch(*(torch.cat(fields) for fields in zip(*parts, strict=True))))
    assert not torch.equal(whole.tokens[:13], one.held_out_batch("validation", torch.arange(13)).tokens)


class Table(nn.Module):
    """A model whose logits do not depend on the text."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.linspace(-1, 1, len(UNITS)))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.logits.expand(*positions.shape, -1)


def test_perplexity_is_the_exponential_of_the_mean_over_units(tmp_path: Path) -> None:
    dataset, model = build(tmp_path), Table()
    whole = dataset.held_out_batch("test", torch.arange(26))
    sums = sum(dataset.task.measure(model, dataset.held_out_batch("test", p)) for p in whole_in(3))
    expected = F.cross_entropy(model.logits.expand(whole.targets.numel(), -1), whole.targets.flatten())
    found = dataset.task.summarise(sums)
    assert sums[1] == 26 * dataset.num_masked
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(expected.item()), rel=1e-6)
    loss, memory = dataset.task.loss(model, whole, None)
    assert memory is None and loss.item() == pytest.approx(expected.item(), rel=1e-6)


def whole_in(parts: int) -> tuple[Tensor, ...]:
    return torch.arange(26).tensor_split(parts)


def test_a_vocabulary_of_its_own() -> None:
    dataset = masked_dataset(CORPUS, max_length=12)
    assert {"film", "playfully", "##f"} < dataset.vocabulary.units.keys()
    small = masked_dataset(CORPUS, max_length=12, vocabulary_size=33)
    assert small.model_arguments()["vocabulary_size"] == 33
    assert not {"unk", "[", "<"} & dataset.vocabulary.units.keys()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 2}, r"data\.max_length must be an integer >= 3, got 2"),
        ({"max_length": 512}, r"the validation split must fill at least one block of data\.max_length"),
        ({"masked_share": 0.0}, r"data\.masked_share must be in \(0, 1\), got 0\.0"),
        ({"masked_share": 1}, r"data\.masked_share must be in \(0, 1\), got 1"),
        ({"partition": "by_label"}, r"data\.partition must be iid or contiguous .* got 'by_label'"),
        ({"vocabulary_size": 9}, r"data\.vocabulary_size has no effect together with data\.vocabulary="),
        ({"vocabulary": None, "vocabulary_size": "9"}, r"data\.vocabulary_size must be an integer >= 1"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(tmp_path, **settings)
