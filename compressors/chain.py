"""Composition of codecs: the second works on the values that the first one keeps."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compressors.api import Codec, Context, squared_norm
from compressors.checks import require


class Chained(NamedTuple):
    """A payload whose values are a payload themselves."""

    outer: Any  # without its values
    inner: Any

    def add_to(self, out: Tensor) -> None:
        positions = self.outer.positions(out.numel())
        values = torch.zeros(len(positions), dtype=out.dtype, device=out.device)
        self.inner.add_to(values)
        out.index_add_(0, positions, values)

    def positions(self, size: int) -> Tensor:
        outer = self.outer.positions(size)
        return outer[self.inner.positions(len(outer))]


@dataclass(frozen=True, kw_only=True)
class Chain:
    """``first``, then ``second`` on the values that ``first`` keeps.

    What ``second`` leaves goes back to where ``first`` took it from. The error is the sum of both
    errors. ``first`` may not be ragged: its positions have to be known where only the elements of
    ``second`` are counted. Raises ``ValueError`` for such a ``first``.
    """

    first: Codec
    second: Codec

    def __post_init__(self) -> None:
        require(not self.first.ragged, "Chain.first", "of a fixed size", self.first)

    @property
    def linear(self) -> bool:
        return self.first.linear and self.second.linear

    @property
    def ragged(self) -> bool:
        return self.second.ragged

    @property
    def randomized(self) -> bool:
        return self.first.randomized or self.second.randomized

    def encode(self, x: Tensor, context: Context) -> Chained:
        outer = self.first.encode(x, context)
        inner = self.second.encode(outer.values, context._replace(segment=f"{context.segment}/second"))
        outer.add_to(x)  # its values are now what the second codec did not send
        return Chained(outer._replace(values=None), inner)

    def error_bound(self, x: Tensor) -> float:
        return squared_norm(x).item()  # no more than everything is lost
