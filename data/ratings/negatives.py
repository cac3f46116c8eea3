"""Negative sampling: uniform draws of unrated items for many users at once."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

_AT_ONCE = 2**20  # pairs looked up together, so that intermediate arrays stay in cache
_SPREAD = 8  # minimum bytes of the table per pair


@dataclass(frozen=True)
class RatedPairs:
    """Set of rated (user, item) pairs for millions of lookups; 16 to 24 bytes per rating.

    A pair's key is user * num_items + item. A table indexed by the key's lowest bits rejects most
    unrated pairs; bisection of the sorted keys decides the others. Lookups are fastest for users in
    ascending order, because they read adjacent memory.
    """

    keys: np.ndarray  # [N] int64, ascending
    table: np.ndarray  # [M] bool, M a power of two: whether a key with these lowest bits exists
    num_items: int

    @classmethod
    def of(cls, users: np.ndarray, items: np.ndarray, num_items: int) -> Self:
        """The pairs of ``users`` [N] and ``items`` [N]."""
        keys = np.sort(keys_of(users, items, num_items))
        table = np.zeros(1 << (_SPREAD * len(keys) - 1).bit_length(), bool)
        table[keys & (len(table) - 1)] = True
        return cls(keys, table, num_items)

    def contain(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """[N] bool: whether user i of ``users`` [N] rated item i of ``items`` [N]."""
        wanted = keys_of(users, items, self.num_items)
        found = self.table[wanted & (len(self.table) - 1)]
        unsure = np.flatnonzero(found)
        wanted = wanted[unsure]
        places = np.searchsorted(self.keys, wanted)
        np.minimum(places, len(self.keys) - 1, out=places)
        found[unsure] = self.keys[places] == wanted
        return found

    def draw_unrated(self, users: np.ndarray, count: int, generator: torch.Generator) -> np.ndarray:
        """[N, count] int32: unrated items for each of ``users`` [N], drawn independently.

        Every user must have an unrated item.
        """
        items = _draw(len(users) * count, self.num_items, generator)
        rejected = [np.empty(0, np.int64)]
        for start in range(0, len(items), _AT_ONCE):
            places = np.arange(start, min(start + _AT_ONCE, len(items)))
            rejected.append(places[self.contain(users[places // count], items[places])])
        pending = np.concatenate(rejected)
        while len(pending):
            items[pending] = _draw(len(pending), self.num_items, generator)
            pending = pending[self.contain(users[pending // count], items[pending])]
        return items.reshape(-1, count)

    def draw_distinct_unrated(self, users: np.ndarray, count: int, generator: torch.Generator) -> np.ndarray:
        """[N, count] int32: like ``draw_unrated``, but without replacement per user.

        Every user must have ``count`` unrated items.
        """
        items = self.draw_unrated(users, count, generator)
        pending = np.arange(len(users))
        while len(pending):
            drawn = np.sort(items[pending], axis=1)
            again = np.zeros(drawn.shape, bool)
            again[:, 1:] = drawn[:, 1:] == drawn[:, :-1]
            rows, columns = again.nonzero()
            drawn[rows, columns] = self.draw_unrated(users[pending[rows]], 1, generator)[:, 0]
            items[pending] = drawn
            pending = pending[np.unique(rows)]
        return items


def keys_of(users: np.ndarray, items: np.ndarray, num_items: int) -> np.ndarray:
    """[N] int64, one number for each pair of ``users`` [N] and ``items`` [N]."""
    return users.astype(np.int64) * num_items + items


def _draw(count: int, below: int, generator: torch.Generator) -> np.ndarray:
    drawn: Tensor = torch.randint(below, (count,), generator=generator, dtype=torch.int32)
    return drawn.numpy()
