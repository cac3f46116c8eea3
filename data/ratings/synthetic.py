"""Synthetic ratings from a low-rank model, for use without a download.

Users and items have normal factors u and v of rank r; items have a normal popularity b. User i rates the
n_i items with the largest ``taste`` u_i.v_j / sqrt(r) + ``skew`` b_j + Gumbel noise. This draws n_i items
without replacement, with probabilities proportional to the exponential of the first two terms. The order in
time is random, so the held-out item has the same distribution as the others.
"""

import math

import numpy as np
import torch

from data.checks import is_number, require_count, require_memory, shown
from data.ratings.dataset import RatingsDataset, check_settings, ratings_dataset
from data.ratings.leave_last_out import Ratings

_AT_ONCE = 2**24  # user-item pairs scored at once


def synthetic_ratings(
    *,
    users: int,
    items: int,
    rank: int,
    fewest: int,
    most: int,
    taste: float,
    skew: float,
    draw_seed: int,
    negatives: int,
    partition: str = "iid",
    alpha: float | None = None,
) -> RatingsDataset:
    """``users`` users with ``fewest`` to ``most`` ratings of ``items`` items each.

    The ratings depend on ``draw_seed``, not on the run's seed. Raises ``ValueError`` for inconsistent
    sizes.
    """
    for name, value, least, largest in (
        ("users", users, 1, 2**24),
        ("items", items, 1, 2**24),
        ("rank", rank, 1, 2**12),
        ("fewest", fewest, 2, 2**24),
        ("most", most, 2, 2**24),
        ("draw_seed", draw_seed, 0, 2**63 - 1),
    ):
        require_count(f"data.{name}", value, least, largest)
    for name, strength in (("taste", taste), ("skew", skew)):
        if not (is_number(strength) and strength >= 0):
            raise ValueError(f"data.{name} must be a finite number >= 0, got {shown(strength)}")
    require_memory("data.users", users, 4 * (users + items) * rank + 32 * users * most)
    if fewest > most:
        raise ValueError(f"data.fewest must be at most data.most ({most}), got {fewest}")
    check_settings(fewest, negatives, partition, alpha)
    return ratings_dataset(
        "synthetic_ratings",
        draw(users, items, rank, fewest, most, taste, skew, draw_seed),
        source="data=synthetic_ratings",
        min_ratings=fewest,
        negatives=negatives,
        partition=partition,
        alpha=alpha,
        extra_facts={"synthetic": f"drawn from a model of rank {rank} by draw_seed {draw_seed}"},
    )


def draw(
    users: int, items: int, rank: int, fewest: int, most: int, taste: float, skew: float, draw_seed: int
) -> Ratings:
    """The ratings by user and then by time; items are numbered 0 to ``items`` - 1."""
    if most > items:
        raise ValueError(f"data.most must be at most data.items ({items}), got {most}")
    generator = torch.Generator().manual_seed(draw_seed)
    user_factors = torch.randn(users, rank, generator=generator)
    item_factors = torch.randn(items, rank, generator=generator) * (taste / math.sqrt(rank))
    popularity = torch.randn(items, generator=generator) * skew
    counts = torch.randint(fewest, most + 1, (users,), generator=generator)
    picked = []
    for part in user_factors.split(max(1, _AT_ONCE // items)):
        gumbel = -torch.empty(len(part), items).exponential_(generator=generator).log()
        best = torch.addmm(popularity, part, item_factors.T).add_(gumbel).topk(most, dim=1).indices
        picked.append(best)
    ranks = torch.arange(most).expand(users, most)
    taken = ranks < counts[:, None]
    moments = torch.rand(users, most, generator=generator).masked_fill_(~taken, 2.0)
    order = moments.argsort(1)  # items that were not drawn come last
    chosen = torch.cat(picked).gather(1, order)[taken]
    who = torch.arange(users).repeat_interleave(counts)
    return Ratings(who.numpy(), chosen.numpy(), np.arange(len(who)))
