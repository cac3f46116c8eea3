"""Implicit-feedback task: predict which items are rated; rank a user's held-out item among unrated ones."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CUTOFF = 10


class RatingsBatch(NamedTuple):
    """One worker's batch of positives and negatives."""

    users: Tensor  # [B] int32
    items: Tensor  # [B] int32
    targets: Tensor  # [B] float32, 1 for a positive, 0 for a negative


class Candidates(NamedTuple):
    """Users and the items to rank for each; the held-out item is the first."""

    users: Tensor  # [B] int32
    items: Tensor  # [B, C] int32


@dataclass(frozen=True)
class Ranking:
    """Binary cross entropy, target 1 for rated items; hit rate at 10 and NDCG at 10 of the held-out item.

    The held-out loss is the mean over all candidates, one of which is the positive. Metrics are means
    over users; ``hits_and_gains`` defines the rank of ties.
    """

    num_sums = 4
    higher_is_better = frozenset({"hit_rate_at_10", "ndcg_at_10"})

    def loss(self, model: nn.Module, batch: RatingsBatch, memory: None) -> tuple[Tensor, None]:
        """Mean binary cross entropy over positives and negatives; no state is carried."""
        return F.binary_cross_entropy_with_logits(model(batch.users, batch.items), batch.targets), None

    def measure(self, model: nn.Module, batch: Candidates) -> Tensor:
        """[4] float64: sums of users' mean losses, hits and gains, and the number of users."""
        users = batch.users.repeat_interleave(batch.items.shape[1])
        scores = model(users, batch.items.flatten()).double().view(batch.items.shape)  # [B, C]
        targets = torch.zeros_like(scores)
        targets[:, 0] = 1
        losses = F.binary_cross_entropy_with_logits(scores, targets, reduction="none").mean(1)
        hits, gains = hits_and_gains(scores)
        return torch.stack([losses.sum(), hits.sum(), gains.sum(), torch.full_like(hits[0], len(hits))])

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""
        loss, hits, gains, users = sums.tolist()
        return {"loss": loss / users, "hit_rate_at_10": hits / users, "ndcg_at_10": gains / users}


def hits_and_gains(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Hit rate at 10 and NDCG at 10 of the first of C candidates, two tensors [B] float64.

    ``scores`` is [B, C]. A hit is 1 if the candidate's rank is at most 10, else 0; its gain is
    1 / log2(1 + rank) at a hit, else 0. If other candidates have the same score as the first, both are
    means over the ranks that a random order of the ties would give. So a model with constant scores
    reaches 10 / C, the chance level. A NaN score counts as equal to all others.
    """
    first, others = scores[:, :1], scores[:, 1:]
    better = (others > first).sum(1)
    ties = others.shape[1] - better - (others < first).sum(1)
    gain = 1 / torch.arange(2, CUTOFF + 2, dtype=torch.float64, device=scores.device).log2()
    gain_up_to = F.pad(gain.cumsum(0), (1, 0))  # [11], sums over the ranks from 1 to the index
    above, last = better.clamp(max=CUTOFF), (better + ties + 1).clamp(max=CUTOFF)
    places = (ties + 1).double()
    return (last - above) / places, (gain_up_to[last] - gain_up_to[above]) / places
