"""Random-block: keep one contiguous block that starts at a random place.

Foroutan Eghlidi and Jaggi, 2020, https://arxiv.org/abs/2009.09271. Biased; a (1 - k/d)-contraction
in expectation, since every coordinate lies in the block with probability k / d. Per kept fp32
element 4 bytes; with own coordinates one 4-byte start per segment and worker besides. Choosing a
block costs no more than copying it.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import Context, elements_of, squared_norm, unsent_share
from compressors.checks import require_density, require_flag
from compressors.density import density_schedule
from compressors.fields import INDICES, VALUES, Field, fields
from compressors.payloads import index_dtype
from compressors.rules import Drawn


class Block(NamedTuple):
    """A contiguous run of entries that wraps around the segment's end; one for each of R workers."""

    values: Tensor  # [R k]
    start: Tensor  # [R] int32 (int64 beyond 2^31 elements)

    FIELDS = fields(values=Field(VALUES, 1), start=Field(INDICES))

    def num_sent(self, size: int) -> int:
        return len(self.values)

    def add_to(self, out: Tensor) -> None:
        k = len(self.values) // len(self.start)
        for begin, start in enumerate(self.start.tolist()):
            values = self.values[k * begin : k * begin + k]
            head = min(k, out.numel() - start)
            out[start : start + head] += values[:head]
            if head < k:
                out[: k - head] += values[head:]

    def positions(self, size: int) -> Tensor:
        offsets = torch.arange(len(self.values) // len(self.start), device=self.start.device)
        return (self.start.long().unsqueeze(1) + offsets).remainder_(size).flatten()


@dataclass(frozen=True, kw_only=True)
class RandomBlock:
    """Keeps a block of k = max(1, floor(density * d)) entries of every segment, new each step.

    With ``shared_coordinates`` all workers draw the same block from the seed, so that no index
    travels and an all-reduce aggregates. ``encode`` sends ``density``; a reducer
    (``build_reducer``) follows the ``schedule``. Raises ``ValueError`` for a density outside (0, 1].
    """

    density: float
    shared_coordinates: bool = True
    schedule: Any = field(default="constant", repr=False)  # of the density; see density.py

    payload = Block
    ragged = False
    randomized = True

    def __post_init__(self) -> None:
        require_density("RandomBlock", self.density)
        object.__setattr__(self, "schedule", density_schedule(self.schedule, self.density))
        require_flag("RandomBlock.shared_coordinates", self.shared_coordinates)

    @property
    def linear(self) -> bool:
        return self.shared_coordinates

    def rule(self, size: int, context: Context, workers: range) -> Drawn:
        k, starts = elements_of(self.density, size), self._draw(size, context, workers)
        wrapped = [max(0, start + k - size) for start in starts]  # entries at the segment's begin
        positions = np.empty((len(starts), k), dtype=np.int64)
        positions[:] = np.arange(k)
        for row, start, begin in zip(positions, starts, wrapped, strict=True):
            row[begin:] += start - begin

        def payload(values: Tensor, num_rows: int) -> Block:
            every = starts * (num_rows // len(starts))
            return Block(values, torch.tensor(every, dtype=index_dtype(size), device=values.device))

        return Drawn(positions, -np.array(wrapped), payload)

    def encode(self, x: Tensor, context: Context) -> Block:
        workers = range(context.worker, context.worker + 1)
        return self.encode_rows(x.unsqueeze(0), context, workers)[0]

    def encode_rows(self, rows: Tensor, context: Context, workers: range) -> tuple[Block, np.ndarray]:
        num_rows, size = rows.shape
        k = elements_of(self.density, size)
        starts = self._draw(size, context, workers)
        if len(starts) == 1:
            values = _cut(rows, starts[0], k)
            starts = starts * num_rows
        else:
            values = torch.cat([_cut(row.unsqueeze(0), s, k) for row, s in zip(rows, starts, strict=True)])
        start = torch.tensor(starts, dtype=index_dtype(size), device=rows.device)
        return Block(values.flatten(), start), np.full(num_rows, k)

    def _draw(self, size: int, context: Context, workers: range) -> list[int]:
        """Where blocks start: one place for all workers or one for each."""
        if self.shared_coordinates:
            return [context.derive_seed(shared=True) % size]
        contexts = [context._replace(worker=worker) for worker in workers]
        return [c.derive_seed(shared=False) % size for c in contexts]

    def error_bound(self, x: Tensor) -> float:
        return unsent_share(self.density, x.numel()) * squared_norm(x).item()


def _cut(rows: Tensor, start: int, k: int) -> Tensor:
    """The block [R, k] at ``start`` of each row [d], which is zero from then on."""
    head, rest = rows[:, start : start + k], rows[:, : max(0, start + k - rows.shape[1])]
    values = torch.cat([head, rest], 1)
    head.zero_()
    rest.zero_()
    return values
