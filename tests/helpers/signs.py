"""Codecs whose payloads have signs of one bit instead of values, and their trainings."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import Codec, Step, Traits
from compressors.core.fields import Field
from compressors.core.norms import squared_norm


class Signs(NamedTuple):
    """A sign bit for each element of a segment, and one magnitude."""

    bits: Annotated[Tensor, Field("signs", 8)]  # [ceil(d / 8)] uint8
    scale: Annotated[Tensor, Field("metadata")]  # [1]


@dataclass(frozen=True, kw_only=True)
class ScaledSign(Codec):
    """The mean magnitude times the sign of every entry, like EF-signSGD."""

    payload = Signs
    traits = Traits(exact=False, dense=True)

    def encode(self, x: Tensor, step: Step) -> Signs:
        signs = Signs(packed(x), x.abs().mean().reshape(1))
        sent = torch.zeros_like(x)
        self.add(signs, sent, step)
        x -= sent
        return signs

    def add(self, payload: Signs, out: Tensor, step: Step) -> None:
        out += unpacked(payload.bits, len(out)).to(out.dtype) * payload.scale

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()


class SignsAt(NamedTuple):
    """Signs and positions of some entries, and one magnitude."""

    indices: Annotated[Tensor, Field("indices", 1)]  # [k] int32
    bits: Annotated[Tensor, Field("signs", 8)]  # [ceil(k / 8)] uint8
    scale: Annotated[Tensor, Field("metadata")]  # [1]

    def num_sent(self, size: int) -> int:
        return len(self.indices)

    def add_to(self, out: Tensor) -> None:
        signs = unpacked(self.bits, len(self.indices)).to(out.dtype)
        out.index_add_(0, self.indices, signs * self.scale)

    def positions(self, size: int) -> Tensor:
        return self.indices.long()


@dataclass(frozen=True, kw_only=True)
class SignAbove(Codec):
    """The threshold times the sign of each entry of magnitude at least the threshold, like Strom."""

    threshold: float

    payload = SignsAt
    traits = Traits(ragged=True, exact=False)

    def encode(self, x: Tensor, step: Step) -> SignsAt:
        where = (x.abs() >= self.threshold).nonzero().squeeze(1)
        signs = SignsAt(where.int(), packed(x[where]), x.new_tensor([self.threshold]))
        sent = torch.zeros_like(x)
        signs.add_to(sent)
        x -= sent
        return signs

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()


def packed(x: Tensor) -> Tensor:
    """Sign bits of ``x`` [k], 1 for entries >= 0, as [ceil(k / 8)] uint8."""
    return torch.from_numpy(np.packbits((x >= 0).numpy()))


def unpacked(bits: Tensor, count: int) -> Tensor:
    """``count`` signs, 1 or -1, [count] float32."""
    return 2.0 * torch.from_numpy(np.unpackbits(bits.numpy(), count=count)).float() - 1
