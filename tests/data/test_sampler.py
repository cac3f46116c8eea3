"""Samplers: batches depend on the step alone; every pass reads every sample of the shard once."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.core.randomness import generator
from data.classification import ClassificationDataset, Split
from data.partition import Sharing
from data.sampler import ShardLoader, ShardSampler

EARLIER = [[[8, 7], [2, 6], [9, 6], [7, 2]], [[3, 0], [4, 1], [5, 0], [3, 4]]]  # by worker, step and sample


def sampler(size: int, batch_size: int, seed: int = 0) -> ShardSampler:
    """A sampler over the samples 100, 101, ..."""
    return ShardSampler(100 + torch.arange(size), batch_size, partial(generator, seed, "order", 3))


def dataset(sizes: int, **settings: object) -> ClassificationDataset:
    part = Split(torch.zeros(sizes, 2), torch.arange(sizes) % 2)
    return ClassificationDataset(train=part, test=part, num_classes=2, sharing=Sharing(**settings))


def load(data: ClassificationDataset, workers: int, size: int | None, seed: int = 0) -> ShardLoader:
    return data.loader(workers, range(workers), size, partial(generator, seed))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5))
def test_each_pass_reads_every_sample_once(size, batch_size, passes):
    batch_size = min(batch_size, size)
    reader = sampler(size, batch_size)
    steps = -(-passes * size // batch_size)
    batches = [reader.batch(step) for step in range(steps)]
    assert {len(batch) for batch in batches} == {batch_size}
    read = torch.cat(batches)[: passes * size].view(passes, size)
    assert (read.sort(1).values == 100 + torch.arange(size)).all()


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 30), st.integers(1, 30), st.lists(st.integers(0, 60), max_size=20))
def test_batches_follow_from_the_step_alone(size, batch_size, visits):
    batch_size = min(batch_size, size)
    in_order = sampler(size, batch_size)
    expected = [in_order.batch(step) for step in range(61)]
    jumping = sampler(size, batch_size)
    for step in visits:
        assert torch.equal(jumping.batch(step), expected[step])
        assert torch.equal(sampler(size, batch_size).batch(step), expected[step])


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 9), st.booleans(), st.integers(0, 3))
def test_shards_dealt_anew_hold_every_sample_once_in_each_pass(count, workers, size, drop_last, seed):
    """The shards of each pass are a partition; two samplers read equal batches."""
    workers = min(workers, count)
    size = min(size, count // workers)
    data = dataset(count, reshard="epoch", drop_last=drop_last)
    readers = load(data, workers, size, seed).samplers
    steps = range(3 * (count // workers // size))
    jumping = load(data, workers, size, seed).samplers
    in_order = [[reader.batch(step) for reader in readers] for step in steps]
    for step in (*reversed(steps), 0):
        for expected, other in zip(in_order[step], jumping, strict=True):
            assert torch.equal(expected, other.batch(step))
    for number in range(3):
        dealt = [reader.deal(number) for reader in readers]
        assert [len(part) for part in dealt] == [len(reader.shard) for reader in readers]
        assert torch.cat(dealt).sort().values.tolist() == list(range(count))


def test_without_resharding_each_worker_reads_its_shard_in_every_pass() -> None:
    """With resharding a worker reads other samples in each pass: of its 8 of 64, 1 repeats by chance."""
    for reshard, back in (("never", range(64, 65)), ("epoch", range(20))):
        readers = load(dataset(64, reshard=reshard), 8, 8).samplers
        first, second = ([set(reader.batch(step).tolist()) for reader in readers] for step in (0, 1))
        assert sum(len(a & b) for a, b in zip(first, second, strict=True)) in back
        assert set.union(*first) == set.union(*second) == set(range(64))


def test_deals_depend_on_seed_and_pass_alone() -> None:
    def deals(seed: int) -> list[list[int]]:
        readers = load(dataset(40, reshard="epoch"), 4, 4, seed).samplers
        return [readers[1].deal(number).tolist() for number in (0, 1, 2, 7)]

    assert deals(0) == deals(0)
    assert len({tuple(deal) for seed in (0, 1) for deal in deals(seed)}) == 8


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 9), st.sampled_from(["iid", "contiguous"]))
def test_drop_last_leaves_out_what_fills_no_batch(count, workers, size, partition):
    """Every worker's pass has floor(smallest shard / batch size) steps, and no sample twice."""
    workers = min(workers, count)
    size = min(size, count // workers)
    steps = count // workers // size
    loader = load(dataset(count, drop_last=True, partition=partition), workers, size)
    assert loader.epochs_per_step == 1 / steps
    for reader in loader.samplers:
        for number in range(3):
            read = torch.cat([reader.batch(number * steps + step) for step in range(steps)])
            assert len(read) == len(read.unique()) == steps * size
            assert set(read.tolist()) <= set(reader.shard.tolist())
            order = torch.randperm(len(reader.shard), generator=reader.generator_of(number))
            assert torch.equal(read, reader.shard[order][: steps * size])


def test_passes_of_another_kind_need_batches() -> None:
    for setting in ({"reshard": "epoch"}, {"drop_last": True}):
        with pytest.raises(
            ValueError,
            match=r"data\.(reshard=epoch|drop_last) cannot be combined with trainer\.batch_size=null",
        ):
            load(dataset(10, **setting), 2, None)


def test_by_default_batches_are_as_they_were() -> None:
    """The expected batches are those of the first release."""
    readers = load(dataset(10), 2, 2).samplers
    assert [[reader.batch(step).tolist() for step in range(4)] for reader in readers] == EARLIER


def test_passes_have_different_orders_and_none_is_the_file_order() -> None:
    reader = sampler(50, 50)
    orders = [tuple(reader.batch(step).tolist()) for step in range(5)]
    assert len({*orders, tuple(range(100, 150))}) == 6


def test_reading_leaves_the_process_wide_random_state_alone() -> None:
    before = torch.get_rng_state()
    sampler(50, 10).batch(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_batch_larger_than_a_shard_of_another_process_is_refused() -> None:
    """Shards of 3, 3, 2 and 2 samples: every process refuses, not only that of worker 2, so that all stop."""
    with pytest.raises(ValueError, match="at most the 2 samples of worker 2, got 3"):
        dataset(10).loader(4, range(0, 1), 3, partial(generator, 0))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"partition": "dirichlet", "alpha": 0.5},
        {"partition": "by_label"},
        {"reshard": "epoch", "drop_last": True},
    ],
)
def test_samplers_of_a_process_are_those_of_its_workers(settings: dict) -> None:
    data = dataset(64, **settings)
    everyone = load(data, 4, 1, 7).samplers
    second_half = data.loader(4, range(2, 4), 1, partial(generator, 7)).samplers
    assert len(second_half) == 2
    for mine, reference in zip(second_half, everyone[2:], strict=True):
        assert torch.equal(mine.shard, reference.shard)
        assert torch.equal(mine.batch(9), reference.batch(9))
    assert torch.cat([reader.shard for reader in everyone]).sort().values.tolist() == list(range(64))


def test_workers_with_the_same_number_of_samples_read_in_different_orders() -> None:
    readers = load(dataset(64, partition="contiguous"), 2, 32).samplers
    first, second = (reader.batch(0) - reader.shard[0] for reader in readers)
    assert first.tolist() != second.tolist()
