"""Partitions: each sample once, and the sizes and labels of each kind."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from compressors.core.randomness import generator
from data.partition import PARTITIONS, Sharing, split
from data.sampler import shard_loader

BALANCED = torch.arange(2000) % 10  # 200 samples of each of 10 labels, in turn


def shards_of(
    targets: Tensor, workers: int, partition: str, alpha: float = 0.5, seed: int = 0
) -> list[Tensor]:
    return split(targets, workers, partition, generator(seed, "partition"), alpha)


def counts(targets: Tensor, shards: list[Tensor]) -> Tensor:
    """Number of samples per worker and label, [n, labels]."""
    return torch.stack([targets[shard].bincount(minlength=int(targets.max()) + 1) for shard in shards])


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60),
    st.integers(1, 60),
    st.sampled_from(PARTITIONS),
    st.sampled_from([1e-3, 0.1, 1.0, 1e3]),
    st.integers(0, 3),
)
def test_every_sample_once_and_no_worker_empty(labels, workers, partition, alpha, seed):
    workers = min(workers, len(labels))
    shards = shards_of(torch.tensor(labels), workers, partition, alpha, seed)
    sizes = [len(shard) for shard in shards]
    assert len(shards) == workers and min(sizes) >= 1
    assert torch.cat(shards).sort().values.tolist() == list(range(len(labels)))
    assert partition == "dirichlet" or max(sizes) - min(sizes) <= 1


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


@pytest.mark.parametrize("alpha", [0.1, 1.0, 1000.0])
def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution(alpha: float) -> None:
    """Dirichlet(a, a, a, a): mean 1/4, variance 1/4 * 3/4 / (4 a + 1); rounding to samples adds 1/12."""
    targets = torch.arange(20_000) % 400
    shares = counts(targets, shards_of(targets, 4, "dirichlet", alpha)) / 50
    assert shares.mean(1).tolist() == pytest.approx([0.25] * 4, abs=0.06)  # three standard errors
    assert shares.var().item() == pytest.approx(3 / 16 / (4 * alpha + 1), rel=0.1, abs=1 / 12 / 50**2 * 2)


class Work(TorchDispatchMode):
    """Counts the entries of all tensors that operations read."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.entries += sum(part.numel() for part in args if isinstance(part, Tensor))
        return func(*args, **(kwargs or {}))


def test_the_work_of_dirichlet_does_not_grow_with_the_number_of_labels_times_samples() -> None:
    targets = torch.randint(1000, (4000,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    with Work() as work:
        shards_of(targets, 4, "dirichlet")
    assert work.entries < 50 * len(targets)


def test_shards_of_other_sizes_are_a_fact() -> None:
    """Their means count equally, so a sample of a small shard counts more."""
    for partition, fact in (("iid", {}), ("dirichlet", {"samples_per_worker"})):
        sharing = Sharing(partition=partition, alpha=0.3 if partition == "dirichlet" else None)
        loader = shard_loader(list, BALANCED, 7, range(7), None, partial(generator, 0), sharing)
        assert loader.facts().keys() == set(fact)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_seed_alone_decides(partition: str) -> None:
    first, again, other = (shards_of(BALANCED, 7, partition, seed=seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, first, again))
    is_random = partition in ("iid", "dirichlet")
    assert is_random == any(a.tolist() != b.tolist() for a, b in zip(first, other, strict=True))
    are_other_shares = not torch.equal(counts(BALANCED, first), counts(BALANCED, other))
    assert are_other_shares == is_random


def test_more_workers_than_samples_are_refused() -> None:
    message = r"^workers must be at most the number of training samples \(5\), got 6$"
    for partition in PARTITIONS:
        with pytest.raises(ValueError, match=message):
            shards_of(torch.zeros(5, dtype=torch.int64), 6, partition)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(
            (
                {"partition": "dirichlet", "alpha": alpha},
                r"data\.alpha must be in \[1e-6, 1e6\] .*dirichlet, got",
            )
            for alpha in (None, 0, -1.0, float("nan"), float("inf"), "1", True, [1.0])
        ),
        (
            {"partition": "IID"},
            r"data\.partition must be one of iid, contiguous, by_label, dirichlet, got 'IID'",
        ),
        ({"reshard": "epochs"}, r"data\.reshard must be one of never, epoch, got 'epochs'"),
        ({"reshard": True}, r"data\.reshard must be one of never, epoch, got True"),
        (
            {"partition": "by_label", "reshard": "epoch"},
            "data.reshard=epoch needs data.partition=iid, got 'by_label'",
        ),
        ({"drop_last": "yes"}, r"data\.drop_last must be true or false, got 'yes'"),
        ({"drop_last": None}, r"data\.drop_last must be true or false, got None"),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sharing(**settings)
