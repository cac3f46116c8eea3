"""Random-block: keep one contiguous block with a random start.

Foroutan Eghlidi and Jaggi, 2020, https://arxiv.org/abs/2009.09271. Biased; a (1 - k/d)-contraction in
expectation, because every coordinate is in the block with probability k / d. 4 bytes per sent fp32 element;
with separate coordinates also one 4-byte start per segment and worker. Choosing a block takes no longer than
copying it.
"""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import INDICES, VALUES, CodecWithDensity, Field, Step, Traits, require_flag
from compressors.core.fields import Joining
from compressors.core.payloads import as_indices, numpy_knows
from compressors.core.rules import Drawn
from compressors.parts.knob import DENSITY


@Joining.register
class Block(NamedTuple):
    """Contiguous entries that wrap around the segment's end; one block for each of R workers."""

    values: Annotated[Tensor, Field(VALUES, 1)]  # [R k]
    start: Annotated[Tensor, Field(INDICES)]  # [R] int32 (int64 beyond 2^31 elements)

    def num_sent(self, size: int) -> int:
        return len(self.values)

    def add_to(self, out: Tensor) -> None:
        num_rows, size = self.start.shape[0], out.shape[0]
        if not out.is_cpu:  # the starts are on the GPU, and reading them would wait for it
            out.index_add_(0, self.positions(size), self.values.to(out.dtype))
            return
        k = self.values.shape[0] // num_rows
        total: Any = out
        values: Any = self.values
        if numpy_knows(out) and numpy_knows(values):  # NumPy takes a tenth of torch's time for a short block
            total, values = out.numpy(), values.numpy()
        for begin, start in zip(range(0, num_rows * k, k), self.start.tolist(), strict=True):
            head = min(k, size - start)
            total[start : start + head] += values[begin : begin + head]
            if head < k:
                total[: k - head] += values[begin + head : begin + k]

    def positions(self, size: int) -> Tensor:
        offsets = torch.arange(len(self.values) // len(self.start), device=self.start.device)
        return (self.start.long().unsqueeze(1) + offsets).remainder_(size).flatten()


@dataclass(frozen=True, kw_only=True)
class RandomBlock(CodecWithDensity):
    """Keeps a block of k = max(1, floor(density * d)) entries of every segment, drawn in each step.

    With ``shared_coordinates`` all workers draw the same block from the seed, so no index is sent and an
    all-reduce computes the mean. ``schedule`` varies the density over the epochs. Raises ``ValueError`` for a
    density outside (0, 1].
    """

    shared_coordinates: bool = True

    payload = Block
    knob = DENSITY._replace(dense_at=1.0)  # no index is sent
    examples = (
        {"density": 0.1, "shared_coordinates": False},
        {"density": 0.1, "shared_coordinates": True},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_flag("RandomBlock.shared_coordinates", self.shared_coordinates)

    @property
    def traits(self) -> Traits:
        lossless_at = {"density": 1.0, "schedule": "constant"}
        return Traits(linear=self.shared_coordinates, drawn=True, seeded=True, lossless_at=lossless_at)

    def rule(self, size: int, step: Step, workers: range) -> Drawn:
        k = self.elements_at(step, size)
        draws = workers if not self.shared_coordinates else range(1)
        starts = [self._start(size, step._replace(worker=worker)) for worker in draws]
        wrapped = [max(0, start + k - size) for start in starts]  # entries at the start of the segment
        ranges = zip(starts, wrapped, strict=True)
        rows = [
            np.concatenate([np.arange(begin), np.arange(start, size)])
            if begin
            else np.arange(start, start + k)
            for start, begin in ranges
        ]
        positions = rows[0][None] if len(rows) == 1 else np.stack(rows)

        def payload(values: Tensor, num_rows: int) -> Block:
            every = np.array(starts * (num_rows // len(starts)))
            return Block(values, as_indices(every, size, values.device))

        return Drawn(positions, np.array([-begin for begin in wrapped]), payload)

    def encode(self, x: Tensor, step: Step) -> Block:
        size, start = x.numel(), self._start(x.numel(), step)
        k = self.elements_at(step, size)
        head, rest = x[start : start + k], x[: max(0, start + k - size)]
        values = torch.cat([head, rest])
        head.zero_()
        rest.zero_()
        return Block(values, as_indices(np.array([start]), size, x.device))

    def _start(self, size: int, step: Step) -> int:
        return step.derive_seed(shared=self.shared_coordinates) % size
