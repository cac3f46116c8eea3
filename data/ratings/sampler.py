"""Sampler of a worker's ratings: each positive once per pass, with new negatives in every pass."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from data.ratings.negatives import RatedPairs
from data.ratings.ranking import RatingsBatch


class RatingsSampler:
    """Full batches from an endless sequence of passes over one worker's positives and their negatives.

    A pass holds every positive once and ``negatives`` unrated items for each, shuffled. When a pass begins,
    ``generator_of("negatives", pass)`` draws the items and ``generator_of("order", pass)`` the order. The
    batch of a step depends on the step alone. ``users`` [N] int32, ascending, and ``items`` [N] int32 are
    the positives; batches are on ``device``.
    """

    def __init__(
        self,
        users: np.ndarray,
        items: np.ndarray,
        rated: RatedPairs,
        negatives: int,
        batch_size: int,
        generator_of: Callable[..., torch.Generator],
        device: torch.device | str = "cpu",
    ) -> None:
        self._group = 1 + negatives
        self._length = len(users) * self._group
        self.batch_size = batch_size
        self._users, self._items, self._rated = users, items, rated
        self._generator_of = generator_of
        self._users_there = torch.from_numpy(users).to(device)
        self._pass = -1
        self._order = self._drawn = torch.empty(0)

    def batch(self, step: int) -> RatingsBatch:
        """The samples [batch_size] of ``step``, counted from 0."""
        start = step * self.batch_size
        stop = start + self.batch_size
        pieces = []
        while start < stop:
            number, offset = divmod(start, self._length)
            pieces.append(self._read(number, offset, min(offset + stop - start, self._length)))
            start += len(pieces[-1].users)
        return pieces[0] if len(pieces) == 1 else RatingsBatch(*map(torch.cat, zip(*pieces, strict=True)))

    def _read(self, number: int, start: int, stop: int) -> RatingsBatch:
        if number != self._pass:
            self._begin(number)
        samples = self._order[start:stop]
        users = self._users_there[samples // self._group]
        return RatingsBatch(users, self._drawn[samples], (samples % self._group == 0).float())

    def _begin(self, number: int) -> None:
        count = self._group - 1
        drawn = np.empty((len(self._items), self._group), np.int32)  # each positive, then its negatives
        drawn[:, 0] = self._items
        drawn[:, 1:] = self._rated.draw_unrated(self._users, count, self._generator_of("negatives", number))
        order: Tensor = torch.randperm(
            self._length, generator=self._generator_of("order", number), dtype=torch.int32
        )
        device = self._users_there.device
        there = (own.to(device, non_blocking=True) for own in (torch.from_numpy(drawn).view(-1), order))
        self._drawn, self._order = there  # does not wait for the GPU
        self._pass = number
