"""Items that a user did not rate, drawn uniformly for many users at once."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_AT_ONCE = 2**22  # pairs looked up together: 64-bit keys of all would take more memory than the ratings


@dataclass(frozen=True)
class RatedPairs:
    """Who rated what, as a sorted array of user * num_items + item: 8 bytes a rating.

    A pair is found by bisection. That is fast for users in ascending order, whose ratings lie
    close together in memory.
    """

    keys: np.ndarray  # [N] int64, ascending
    num_items: int

    @classmethod
    def of(cls, users: np.ndarray, items: np.ndarray, num_items: int) -> "RatedPairs":
        """The pairs of ``users`` [N] and ``items`` [N]."""
        unsorted = cls(np.empty(0, np.int64), num_items)
        return cls(np.sort(unsorted.keys_of(users, items)), num_items)

    def keys_of(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """[N] int64, one number for each pair."""
        return users.astype(np.int64) * self.num_items + items

    def pairs_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Users [N] and items [N] int32, of ``keys_of``."""
        users, items = np.divmod(keys, self.num_items)
        return users.astype(np.int32), items.astype(np.int32)

    def contain(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """[N] bool: whether ``users`` [N] rated ``items`` [N]."""
        wanted = self.keys_of(users, items)
        found = np.searchsorted(self.keys, wanted)
        np.minimum(found, len(self.keys) - 1, out=found)
        return self.keys[found] == wanted

    def draw_unrated(self, users: np.ndarray, count: int, stream: torch.Generator) -> np.ndarray:
        """[N, count] int32: for each of ``users`` [N] items he did not rate, each drawn by itself.

        Every user must have an item left that he did not rate.
        """
        items = _draw(len(users) * count, self.num_items, stream)
        rejected = [np.empty(0, np.int64)]
        for start in range(0, len(items), _AT_ONCE):
            places = np.arange(start, min(start + _AT_ONCE, len(items)))
            rejected.append(places[self.contain(users[places // count], items[places])])
        pending = np.concatenate(rejected)
        while len(pending):
            items[pending] = _draw(len(pending), self.num_items, stream)
            pending = pending[self.contain(users[pending // count], items[pending])]
        return items.reshape(-1, count)

    def draw_distinct_unrated(self, users: np.ndarray, count: int, stream: torch.Generator) -> np.ndarray:
        """[N, count] int32: as ``draw_unrated``, but no item twice for a user.

        Every user must have ``count`` items left that he did not rate.
        """
        items = self.draw_unrated(users, count, stream)
        pending = np.arange(len(users))
        while len(pending):
            drawn = items[pending]
            drawn.sort(axis=1)
            again = np.zeros(drawn.shape, bool)
            again[:, 1:] = drawn[:, 1:] == drawn[:, :-1]
            rows, columns = again.nonzero()
            drawn[rows, columns] = self.draw_unrated(users[pending[rows]], 1, stream)[:, 0]
            items[pending] = drawn
            pending = pending[np.unique(rows)]
        return items


def _draw(count: int, below: int, stream: torch.Generator) -> np.ndarray:
    drawn: Tensor = torch.randint(below, (count,), generator=stream, dtype=torch.int32)
    return drawn.numpy()
