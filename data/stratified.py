"""Stratified held-out samples: a share of every class, by a fixed draw."""

import torch
from torch import Tensor


def held_out_mask(targets: Tensor, share: float) -> Tensor:
    """[N] bool, true for ``share`` of the samples of every label in ``targets`` [N], rounded.

    The draw does not depend on a run's seed: all runs are measured on the same samples.
    """
    generator = torch.Generator().manual_seed(0)
    mask = torch.zeros(len(targets), dtype=torch.bool)
    for label in targets.unique():
        members = (targets == label).nonzero().squeeze(1)
        drawn = torch.randperm(len(members), generator=generator)[: round(len(members) * share)]
        mask[members[drawn]] = True
    return mask
