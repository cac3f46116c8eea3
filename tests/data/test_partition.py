"""Partitions: each sample once, and the sizes and labels of each kind."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compressors.core.randomness import generator
from data.partition import PARTITIONS, check_partition, check_passes, split

BALANCED = torch.arange(2000) % 10  # 200 samples of each of 10 labels, in turn


def shards_of(
    targets: Tensor, workers: int, partition: str, alpha: float = 0.5, seed: int = 0
) -> list[Tensor]:
    return split(
        targets, workers, partition, generator(seed, "partition"), alpha if partition == "dirichlet" else None
    )


def counts(targets: Tensor, shards: list[Tensor]) -> Tensor:
    """Number of samples per worker and label, [n, labels]."""
    return torch.stack([targets[shard].bincount(minlength=int(targets.max()) + 1) for shard in shards])


def inequality(shares: Tensor) -> float:
    """Mean total variation distance between a worker's labels and all labels; ``shares`` is [n, labels]."""
    own = shares / shares.sum(1, keepdim=True)
    everyone = shares.sum(0) / shares.sum()
    return float((own - everyone).abs().sum(1).mean() / 2)


def assert_partitioned(shards: list[Tensor], count: int, workers: int) -> None:
    assert len(shards) == workers
    assert min(map(len, shards)) >= 1
    assert torch.cat(shards).sort().values.tolist() == list(range(count))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60),
    st.integers(1, 60),
    st.sampled_from(PARTITIONS),
    st.sampled_from([1e-3, 0.1, 1.0, 1e3]),
    st.integers(0, 3),
)
def test_every_sample_once_and_no_worker_empty(labels, workers, partition, alpha, seed):
    workers = min(workers, len(labels))
    targets = torch.tensor(labels)
    assert_partitioned(shards_of(targets, workers, partition, alpha, seed), len(labels), workers)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 200), st.integers(1, 200), st.sampled_from(["iid", "contiguous", "by_label"]))
def test_sizes_differ_by_at_most_one(count, workers, partition):
    workers = min(workers, count)
    sizes = [len(shard) for shard in shards_of(torch.arange(count) % 3, workers, partition)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("workers", [1, 3])
def test_as_many_workers_as_samples(partition: str, workers: int) -> None:
    targets = torch.zeros(workers, dtype=torch.int64)
    assert_partitioned(shards_of(targets, workers, partition, 1e-3), workers, workers)


def test_contiguous_cuts_the_file_order() -> None:
    shards = shards_of(BALANCED[:10], 4, "contiguous")
    assert [shard.tolist() for shard in shards] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_iid_mixes_labels_and_positions() -> None:
    ordered = BALANCED.sort().values
    shards = shards_of(ordered, 4, "iid")
    assert counts(ordered, shards).min() >= 30  # 50 expected, standard deviation 6
    for shard in shards:
        assert shard.float().mean().item() == pytest.approx(999.5, abs=100)  # standard deviation 22
        assert shard.tolist() != sorted(shard.tolist())


def test_by_label_sorts_by_label_and_keeps_the_file_order_within() -> None:
    targets = torch.tensor([2, 0, 1, 0, 2, 1])
    assert [shard.tolist() for shard in shards_of(targets, 3, "by_label")] == [[1, 3], [2, 5], [0, 4]]


def test_by_label_gives_each_worker_few_labels() -> None:
    shuffled = BALANCED[torch.randperm(2000, generator=generator(0))]
    assert (counts(shuffled, shards_of(shuffled, 5, "by_label")) > 0).sum(1).tolist() == [2] * 5
    assert (counts(shuffled, shards_of(shuffled, 10, "by_label")) > 0).sum(1).tolist() == [1] * 10
    # n workers cut ten runs of labels at n - 1 places
    assert (counts(shuffled, shards_of(shuffled, 7, "by_label")) > 0).sum() <= 10 + 7 - 1


def test_dirichlet_is_the_more_unequal_the_smaller_alpha() -> None:
    levels = [
        inequality(counts(BALANCED, shards_of(BALANCED, 8, "dirichlet", alpha)))
        for alpha in (0.01, 0.1, 1.0, 10.0, 1000.0)
    ]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > 0.7
    assert levels[-1] < 0.05


def test_huge_alpha_shares_every_label_evenly() -> None:
    """Share 1/8 with standard deviation sqrt(1/8 * 7/8 / 8001) = 0.0037, so 25 +- 0.74 samples."""
    table = counts(BALANCED, shards_of(BALANCED, 8, "dirichlet", 1e3))
    assert (table - 25).abs().max() <= 4


def test_tiny_alpha_gives_every_label_to_one_worker() -> None:
    table = counts(BALANCED, shards_of(BALANCED, 20, "dirichlet", 1e-3))
    owners = (table > 20).sum(0)
    assert owners.float().mean() <= 1.2
    assert (table.max(0).values >= 200 - 20).float().mean() >= 0.8  # a few samples go to empty workers


def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution() -> None:
    """Dirichlet(1, 1, 1, 1): mean 1/4, variance 1/4 * 3/4 / (4 + 1) = 0.0375."""
    targets = torch.arange(20_000) % 400
    shares = counts(targets, shards_of(targets, 4, "dirichlet", 1.0)) / 50
    assert shares.mean(1).tolist() == pytest.approx([0.25] * 4, abs=0.04)  # four standard errors
    assert shares.var().item() == pytest.approx(0.0375, rel=0.1)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_seed_alone_decides(partition: str) -> None:
    first, again, other = (shards_of(BALANCED, 7, partition, seed=seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, first, again))
    is_random = partition in ("iid", "dirichlet")
    assert is_random == any(a.tolist() != b.tolist() for a, b in zip(first, other, strict=True))


def test_dirichlet_draws_other_shares_for_another_seed() -> None:
    tables = [counts(BALANCED, shards_of(BALANCED, 4, "dirichlet", seed=seed)) for seed in (1, 2)]
    assert not torch.equal(*tables)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_more_workers_than_samples_are_refused(partition: str) -> None:
    message = r"^workers must be at most the number of training samples \(5\), got 6$"
    with pytest.raises(ValueError, match=message):
        shards_of(torch.zeros(5, dtype=torch.int64), 6, partition)


@pytest.mark.parametrize("alpha", [None, 0, 0.0, -1.0, float("nan"), float("inf"), "1", True, [1.0]])
def test_dirichlet_needs_a_positive_alpha(alpha) -> None:
    with pytest.raises(
        ValueError, match=r"data\.alpha must be in \[1e-6, 1e6\] .*dirichlet, got "
    ) as refusal:
        check_partition("dirichlet", alpha)
    assert repr(alpha) in str(refusal.value)


@pytest.mark.parametrize("partition", ["iid", "contiguous", "by_label"])
def test_alpha_of_a_preset_does_not_change_the_other_partitions(partition: str) -> None:
    with_alpha = split(BALANCED, 2, partition, generator(0), 0.5)
    without = split(BALANCED, 2, partition, generator(0))
    assert all(torch.equal(a, b) for a, b in zip(with_alpha, without, strict=True))


@pytest.mark.parametrize("partition", ["random", "IID", "", None])
def test_unknown_partition_is_refused_with_the_known_ones(partition) -> None:
    with pytest.raises(
        ValueError, match=r"data\.partition must be one of iid, contiguous, by_label, dirichlet"
    ):
        split(BALANCED, 2, partition, generator(0))


def test_only_iid_shards_are_dealt_anew() -> None:
    check_passes("iid", "epoch", True)
    for partition in ("contiguous", "by_label", "dirichlet"):
        check_passes(partition, "never", True)
        with pytest.raises(
            ValueError, match=f"data.reshard=epoch needs data.partition=iid, got '{partition}'"
        ):
            check_passes(partition, "epoch", False)


@pytest.mark.parametrize("reshard", ["epochs", "", None, True, 1])
def test_unknown_reshard_is_refused_with_the_known_ones(reshard) -> None:
    with pytest.raises(ValueError, match=r"data\.reshard must be one of never, epoch, got"):
        check_passes("iid", reshard, False)


@pytest.mark.parametrize("drop_last", ["yes", 1, None])
def test_drop_last_must_be_true_or_false(drop_last) -> None:
    with pytest.raises(ValueError, match=r"data\.drop_last must be true or false, got"):
        check_passes("iid", "never", drop_last)
