"""Partitions of the training samples over n workers."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from data.checks import is_number, require_flag, shown
from data.stratified import by_label

PARTITIONS = ("iid", "contiguous", "by_label", "dirichlet")
RESHARDS = ("never", "epoch")
ALPHAS = (1e-6, 1e6)  # far outside these bounds the draws become NaN


def check_partition(partition: str, alpha: float | None) -> None:
    """Raise ``ValueError`` for an unknown partition, and for ``dirichlet`` without a valid ``alpha``."""
    if partition not in PARTITIONS:
        raise ValueError(f"data.partition must be one of {', '.join(PARTITIONS)}, got {partition!r}")
    if partition == "dirichlet" and not (is_number(alpha) and ALPHAS[0] <= alpha <= ALPHAS[1]):
        rule = "in [1e-6, 1e6] for data.partition=dirichlet"
        raise ValueError(f"data.alpha must be {rule}, got {shown(alpha)}")


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Settings of a dataset by which its training samples are shared over the workers.

    ``partition`` and ``alpha`` are those of ``split``. ``reshard="epoch"`` splits the samples anew for each
    pass. With ``drop_last`` a pass has the full batches of the smallest shard, else it reads whole shards.
    Raises ``ValueError`` for invalid settings, and for ``reshard`` without the iid partition.
    """

    partition: str = "iid"
    alpha: float | None = None
    reshard: str = "never"
    drop_last: bool = False

    def __post_init__(self) -> None:
        check_partition(self.partition, self.alpha)
        if self.reshard not in RESHARDS:
            raise ValueError(f"data.reshard must be one of {', '.join(RESHARDS)}, got {self.reshard!r}")
        if self.reshard == "epoch" and self.partition != "iid":
            raise ValueError(f"data.reshard=epoch needs data.partition=iid, got {self.partition!r}")
        require_flag("data.drop_last", self.drop_last)


def split(
    targets: Tensor, workers: int, partition: str, generator: torch.Generator, alpha: float | None = None
) -> list[Tensor]:
    """Sample indices of every worker. Each sample has one worker, and each worker has at least one sample.

    ``targets`` is [N] int64 with N >= workers. ``iid`` shuffles the samples and cuts them into n parts
    whose sizes differ by at most one. ``contiguous`` cuts the samples in file order. ``by_label`` sorts
    them by label first, so that a worker has few labels. ``dirichlet`` divides the samples of each label
    over the workers in proportions drawn from Dirichlet(alpha) (Yurochkin et al., 2019,
    https://arxiv.org/abs/1905.12022); a smaller alpha makes the workers differ more, also in their number of
    samples, unlike the split of Hsu et al., 2019, https://arxiv.org/abs/1909.06335. If a worker gets no
    sample, one sample is moved to it from the largest shard. Raises ``ValueError`` for more workers than
    samples.
    """
    count = len(targets)
    if workers > count:
        raise ValueError(f"workers must be at most the number of training samples ({count}), got {workers}")
    check_partition(partition, alpha)
    if partition == "dirichlet":
        assert alpha is not None  # check_partition has checked it
        return _dirichlet(targets, workers, generator, alpha)
    if partition == "iid":
        order = torch.randperm(count, generator=generator)
    elif partition == "contiguous":
        order = torch.arange(count)
    else:
        order = targets.argsort(stable=True)
    return list(order.tensor_split(workers))


def _dirichlet(targets: Tensor, workers: int, generator: torch.Generator, alpha: float) -> list[Tensor]:
    rng = np.random.default_rng(generator.initial_seed())  # torch's Dirichlet takes no generator
    shards: list[list[Tensor]] = [[] for _ in range(workers)]
    for members in by_label(targets):
        members = members[torch.randperm(len(members), generator=generator)]
        shares = rng.dirichlet([alpha] * workers)
        cuts = (shares.cumsum()[:-1] * len(members)).round().astype(int).tolist()
        for shard, part in zip(shards, members.tensor_split(cuts), strict=True):
            shard.append(part)
    merged = [torch.cat(shard) for shard in shards]
    for worker in range(workers):
        if len(merged[worker]) == 0:
            largest = max(range(workers), key=lambda w: len(merged[w]))
            merged[worker], merged[largest] = merged[largest][-1:], merged[largest][:-1]
    return merged
