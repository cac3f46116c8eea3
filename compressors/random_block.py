"""Random-block: keep one contiguous block that starts at a random place.

Foroutan Eghlidi and Jaggi, 2020, https://arxiv.org/abs/2009.09271. Biased; a (1 - k/d)-contraction
in expectation, since every coordinate lies in the block with probability k / d. Per kept fp32
element 4 bytes; with own coordinates one 4-byte start per segment and worker besides. Choosing a
block costs no more than copying it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import Context, elements_of, squared_norm, unsent_share
from compressors.checks import require_density, require_flag
from compressors.payloads import index_dtype


class Block(NamedTuple):
    """A contiguous run of entries that wraps around the segment's end."""

    values: Tensor  # [k]
    start: Tensor  # [1] int32 (int64 beyond 2^31 elements)

    def add_to(self, out: Tensor) -> None:
        start, head = self._split(out.numel())
        out[start : start + head].add_(self.values[:head])
        out[: len(self.values) - head].add_(self.values[head:])

    def positions(self, size: int) -> Tensor:
        offsets = torch.arange(len(self.values), device=self.start.device)
        return (self.start.long() + offsets).remainder_(size)

    def _split(self, size: int) -> tuple[int, int]:
        start = int(self.start)
        return start, min(len(self.values), size - start)


@dataclass(frozen=True, kw_only=True)
class RandomBlock:
    """Keeps a block of k = max(1, floor(density * d)) entries of every segment, new each step.

    With ``shared_coordinates`` all workers draw the same block from the seed, so that no index
    travels and an all-reduce aggregates. Raises ``ValueError`` for a density outside (0, 1].
    """

    density: float
    shared_coordinates: bool = True

    ragged = False
    randomized = True

    def __post_init__(self) -> None:
        require_density("RandomBlock", self.density)
        require_flag("RandomBlock.shared_coordinates", self.shared_coordinates)

    @property
    def linear(self) -> bool:
        return self.shared_coordinates

    def encode(self, x: Tensor, context: Context) -> Block:
        start = context.derive_seed(shared=self.shared_coordinates) % x.numel()
        k = elements_of(self.density, x.numel())
        head, rest = x[start : start + k], x[: max(0, start + k - x.numel())]
        values = torch.cat([head, rest])
        head.zero_()
        rest.zero_()
        return Block(values, torch.tensor([start], dtype=index_dtype(x), device=x.device))

    def error_bound(self, x: Tensor) -> float:
        return unsent_share(self.density, x.numel()) * squared_norm(x).item()
