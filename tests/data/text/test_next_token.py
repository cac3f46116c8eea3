"""Streams, windows, the hidden state kept between windows; perplexity, compared with a plain computation."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compressors.core.randomness import generator
from data.text.next_token import NextToken, NextTokenDataset
from data.text.streams import HeldOutColumns, StreamLoader, TokenBatch
from models.lstm import lstm

WORDS = 11


def tokens(count: int, salt: str = "") -> Tensor:
    return torch.randint(WORDS, (count,), generator=generator("tokens", salt))


def dataset(**changes: object) -> NextTokenDataset:
    settings = {
        "train": tokens(500),
        "validation": tokens(47, "v"),
        "test": tokens(30, "t"),
        "num_words": WORDS,
        "bptt": 6,
        "evaluation_columns": 4,
        "extra_facts": {},
    }
    return NextTokenDataset(**settings | changes)


def model(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return lstm(num_words=WORDS, width=8, layers=2, dropout=dropout)


@pytest.mark.parametrize(("workers", "batch_size", "bptt"), [(1, 1, 7), (3, 4, 6), (4, 1, 1000), (4, 5, 1)])
def test_a_pass_reads_each_worker_its_own_part_of_the_text(workers: int, batch_size: int, bptt: int) -> None:
    text = torch.arange(500)
    loader = StreamLoader.cut(text, workers, range(workers), batch_size, bptt)
    steps = [loader.batches(step) for step in range(loader.windows)]
    inputs = torch.stack([torch.cat([step[w].inputs for step in steps], 1) for w in range(workers)])
    targets = torch.stack([torch.cat([step[w].targets for step in steps], 1) for w in range(workers)])
    length = 499 // (workers * batch_size)
    assert inputs.shape == (workers, batch_size, length)
    assert inputs.flatten().tolist() == list(range(workers * batch_size * length))
    assert torch.equal(targets, inputs + 1)
    assert loader.left_out == 499 - inputs.numel() < workers * batch_size
    assert all(step[0].inputs.shape[1] == bptt for step in steps[:-1])
    assert loader.epochs_per_step * len(steps) == pytest.approx(1)
    assert loader.tokens_per_step * len(steps) == pytest.approx(inputs[0].numel())


def test_batches_follow_from_the_step_alone() -> None:
    make = partial(StreamLoader.cut, tokens(500), 4, batch_size=3, bptt=6)
    loader, other = make(local_workers=range(4)), make(local_workers=range(2, 4))
    for step in (9, 0, loader.windows, 3):
        for ours, theirs in zip(loader.batches(step)[2:], other.batches(step), strict=True):
            assert torch.equal(ours.inputs, theirs.inputs)
            assert torch.equal(ours.targets, theirs.targets)
            assert ours.restart == theirs.restart == (step % loader.windows == 0)
    first, again = loader.batches(0)[1], loader.batches(loader.windows)[1]
    assert torch.equal(first.inputs, again.inputs)


@pytest.mark.parametrize(
    ("workers", "batch_size", "message"),
    [
        (10, 1, "workers must be at most the 9 tokens to predict in the training split, got 10"),
        (2, 5, "trainer.batch_size must be at most the 4 tokens of a worker's stream, got 5"),
        (2, None, "trainer.batch_size must be an integer >= 1 for streams of text, got None"),
    ],
)
def test_streams_that_are_too_short(workers: int, batch_size: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataset(train=tokens(10)).loader(workers, range(workers), batch_size, generator)


def test_empty_split() -> None:
    with pytest.raises(ValueError, match="the test split must have at least 2 tokens, got 1"):
        dataset(test=tokens(1))


@pytest.mark.parametrize("columns", [1, 4, 7, 46])
def test_columns_hold_every_token_once(columns: int) -> None:
    text = torch.arange(100, 147)
    cut = HeldOutColumns.cut(text, columns)
    real = cut.targets >= 0
    assert len(cut) == columns
    assert cut.targets[real].tolist() == list(range(101, 147))
    assert torch.equal(cut.inputs[real], cut.targets[real] - 1)
    assert real.sum(1).max() - real.sum(1).min() <= 1
    assert torch.equal(real, real.sort(1, descending=True).values)  # padding only at the ends


def test_two_windows_with_memory_are_one_sequence() -> None:
    net, task = model(), NextToken(bptt=6)
    text = tokens(2 * 13).view(2, 13)
    whole, _ = task.loss(net, TokenBatch(text[:, :-1], text[:, 1:], restart=True), None)
    first, memory = task.loss(net, TokenBatch(text[:, :6], text[:, 1:7], restart=True), None)
    second, _ = task.loss(net, TokenBatch(text[:, 6:12], text[:, 7:], restart=False), memory)
    assert (first + second).item() / 2 == pytest.approx(whole.item(), rel=1e-6)
    fresh, _ = task.loss(net, TokenBatch(text[:, 6:12], text[:, 7:], restart=True), memory)
    assert fresh.item() != pytest.approx(second.item(), rel=1e-6)


def test_memory_has_no_graph() -> None:
    net, text = model(), tokens(14).view(2, 7)
    _, memory = NextToken(bptt=6).loss(net, TokenBatch(text[:, :-1], text[:, 1:], restart=True), None)
    assert [part.shape for part in memory] == [(2, 2, 8)] * 2
    assert not any(part.requires_grad for part in memory)


@pytest.mark.parametrize("chunk", [1, 3, 256])
def test_perplexity_is_that_of_a_plain_computation(chunk: int) -> None:
    data, net = dataset(), model(dropout=0.5).eval()
    sums = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for indices in torch.arange(len(data.held_out["validation"])).split(chunk):
            sums += data.task.measure(net, data.held_out_batch("validation", indices))
        losses = []
        columns = zip(data.validation[:-1].tensor_split(4), data.validation[1:].tensor_split(4), strict=True)
        for inputs, targets in columns:
            logits, _ = net(inputs[None])
            losses += F.cross_entropy(logits[0], targets, reduction="none").tolist()
    assert len(losses) == sums[1] == 46
    found = data.task.summarise(sums)
    assert found["loss"] == pytest.approx(sum(losses) / 46, rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(sum(losses) / 46), rel=1e-6)
    assert data.task.higher_is_better == frozenset()


def test_a_diverged_model_has_infinite_perplexity() -> None:
    assert NextToken(bptt=1).summarise(torch.tensor([1e5, 1.0])) == {"loss": 1e5, "perplexity": math.inf}
