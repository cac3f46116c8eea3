"""Preparation of raw ratings: drop users with few ratings, number ids from 0, hold out last ratings."""

from typing import NamedTuple

import numpy as np


class Ratings(NamedTuple):
    """Users, items and times of ratings in file order. The value of a rating is not used."""

    users: np.ndarray  # [N] any integers
    items: np.ndarray  # [N] any integers
    times: np.ndarray  # [N] any numbers


class LeftOut(NamedTuple):
    """Training ratings and held-out items. Users and items are numbered from 0 in the order of their ids."""

    users: np.ndarray  # [N] int32, of the training ratings, in file order
    items: np.ndarray  # [N] int32
    last_items: np.ndarray  # [num_users] int32, the held-out items of users 0, 1, ...
    num_items: int


def leave_last_out(ratings: Ratings, min_ratings: int, source: str) -> LeftOut:
    """Hold out each user's last rating by time; of equal times, the last one in the file.

    If a user rated an item several times, only the latest rating is kept. Users with fewer than
    ``min_ratings`` items are dropped, then items without ratings. Raises ``ValueError``, with the name
    ``source``, if no user remains.
    """
    users, items, times = _number(ratings.users), _number(ratings.items), ratings.times
    keep = _last_of_pairs(users, items, times)
    if keep is not None:
        users, items, times = users[keep], items[keep], times[keep]
    enough = (np.bincount(users) >= min_ratings)[users]
    if not enough.any():
        raise ValueError(f"{source}: no user has the {min_ratings} ratings of data.min_ratings")
    if not enough.all():
        users, items, times = _number(users[enough]), _number(items[enough]), times[enough]
    latest = np.full(users.max() + 1, times.min())
    np.maximum.at(latest, users, times)
    candidates = np.flatnonzero(times == latest[users])
    last = np.empty(len(latest), np.int64)
    last[users[candidates]] = candidates  # the last assignment wins
    training = np.ones(len(users), bool)
    training[last] = False
    return LeftOut(users[training], items[training], items[last], int(items.max()) + 1)


def _number(ids: np.ndarray) -> np.ndarray:
    """[N] int32: the rank of each id among the distinct ones."""
    if len(ids) == 0:
        return ids.astype(np.int32)
    low, high = int(ids.min()), int(ids.max())
    if high - low > 8 * len(ids) + 1000:
        return np.unique(ids, return_inverse=True)[1].astype(np.int32)
    seen = np.zeros(high - low + 1, bool)  # dense ids need no sort
    seen[ids - low] = True
    return (seen.cumsum(dtype=np.int32) - 1)[ids - low]


def _last_of_pairs(users: np.ndarray, items: np.ndarray, times: np.ndarray) -> np.ndarray | None:
    """Rows to keep, in file order: the latest of each pair of user and item. None keeps all rows."""
    pairs = users.astype(np.int64) * (int(items.max(initial=0)) + 1) + items
    ascending = np.sort(pairs)
    if (ascending[1:] != ascending[:-1]).all():
        return None
    order = np.lexsort((times, pairs))
    ends = np.append(pairs[order[1:]] != pairs[order[:-1]], True)
    return np.sort(order[ends])
