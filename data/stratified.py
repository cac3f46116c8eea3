"""Stratified held-out samples: a fraction of every class, by a fixed draw."""

import torch
from torch import Tensor


def by_label(targets: Tensor) -> tuple[Tensor, ...]:
    """Indices of each label's samples in ``targets`` [N], ascending, label after label.

    One sort instead of one search per label: the labels may be thousands of users.
    """
    counts = targets.unique(return_counts=True)[1]
    return targets.argsort(stable=True).split(counts.tolist())


def held_out_mask(targets: Tensor, share: float) -> Tensor:
    """[N] bool, true for a fraction ``share``, rounded, of the samples of each label in ``targets`` [N].

    The draw does not depend on the run's seed: all runs are tested on the same samples.
    """
    generator = torch.Generator().manual_seed(0)
    mask = torch.zeros(len(targets), dtype=torch.bool)
    for members in by_label(targets):
        drawn = torch.randperm(len(members), generator=generator)[: round(len(members) * share)]
        mask[members[drawn]] = True
    return mask
