"""Synthetic ratings, drawn from a low-rank model: made up, for machines that have no real ones.

Users and items have normal factors u and v of rank r, items a popularity b. User i picks n_i items, the
largest of ``taste`` u_i.v_j / sqrt(r) + ``skew`` b_j + Gumbel noise, which is drawing without
replacement in proportion to the exponential of the first two terms. Their order in time is random, so
that the item held out is one like the others.
"""

import math

import numpy as np
import torch

from data.leave_last_out import Ratings
from data.ratings import RatingsDataset, check_settings, ratings_dataset

_AT_ONCE = 2**24  # users times items scored together


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
    """``users`` who rated ``fewest`` to ``most`` of ``items`` each, drawn by ``draw_seed`` alone.

    The run's seed does not matter to them. Raises ``ValueError`` for sizes that do not fit each other.
    """
    for name, value, least in (
        ("users", users, 1),
        ("items", items, 1),
        ("rank", rank, 1),
        ("fewest", fewest, 2),
        ("most", most, 2),
        ("draw_seed", draw_seed, 0),
    ):
        if not (type(value) is int and value >= least):
            raise ValueError(f"data.{name} must be an integer >= {least}, got {value!r}")
    for name, value in (("taste", taste), ("skew", skew)):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (is_number and 0 <= value < math.inf):
            raise ValueError(f"data.{name} must be a finite number >= 0, got {value!r}")
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
        said={"synthetic": f"drawn from a model of rank {rank} by draw_seed {draw_seed}"},
    )


def draw(
    users: int, items: int, rank: int, fewest: int, most: int, taste: float, skew: float, draw_seed: int
) -> Ratings:
    """The ratings, user after user, each user's in the order of time; items named 0 to ``items`` - 1."""
    if most > items:
        raise ValueError(f"data.most must be at most data.items ({items}), got {most}")
    stream = torch.Generator().manual_seed(draw_seed)
    user_factors = torch.randn(users, rank, generator=stream)
    item_factors = torch.randn(items, rank, generator=stream) * (taste / math.sqrt(rank))
    popularity = torch.randn(items, generator=stream) * skew
    counts = torch.randint(fewest, most + 1, (users,), generator=stream)
    picked = []
    for part in user_factors.split(max(1, _AT_ONCE // items)):
        gumbel = -torch.empty(len(part), items).exponential_(generator=stream).log()
        best = torch.addmm(popularity, part, item_factors.T).add_(gumbel).topk(most, dim=1).indices
        picked.append(best)
    ranks = torch.arange(most).expand(users, most)
    taken = ranks < counts[:, None]
    moments = torch.rand(users, most, generator=stream).masked_fill_(~taken, 2.0)
    order = moments.argsort(1)  # what was not taken comes last
    chosen = torch.cat(picked).gather(1, order)[taken]
    who = torch.arange(users).repeat_interleave(counts)
    return Ratings(who.numpy(), chosen.numpy(), np.arange(len(who)))
