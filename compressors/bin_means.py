"""Bins: every entry becomes the mean of its bin, of a few bins around the mean of all entries.

The quantiser of Sarfi et al., 2025, "SparseLoCo", https://arxiv.org/abs/2508.15706, for the values that its
Top-k selects. The 2^bits bins together are ``deviations`` standard deviations wide: entry x is in bin
round((x - mean) / width + 2^bits / 2) with the width of a bin, and the outer bins are open. With 2 bits the
bins are therefore centred at -2, -1, 0 and 1 widths from the mean. Biased; ||x - C(x)|| <= ||x||. ``bits``
bits per entry, and 4 bytes per bin for its mean.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from compressors.api import METADATA, Codec, Field, Knob, Step, Traits, is_count, is_real, require
from compressors.core.fields import PayloadType
from compressors.encoding.packing import join_bits, split_bits, widths_of

MOST_BITS = 8


@dataclass(frozen=True, kw_only=True)
class BinMeans(Codec):
    """Sends the bin of every entry in ``bits`` bits, and the mean of each bin's entries.

    Raises ``ValueError`` for bits outside [1, 8] and for deviations that are not positive.
    """

    bits: int = 2
    deviations: float = 6.0

    traits = Traits(exact=False, dense=True)
    knob = Knob("bits", highest=MOST_BITS)
    examples = ({"bits": 3},)

    def __post_init__(self) -> None:
        valid = is_count(self.bits) and self.bits <= MOST_BITS
        require(valid, "BinMeans.bits", f"an integer from 1 to {MOST_BITS}", self.bits)
        valid = is_real(self.deviations) and self.deviations > 0
        require(valid, "BinMeans.deviations", "a finite number > 0", self.deviations)

    @property
    def payload(self) -> PayloadType:
        return _payload(self.bits)

    def encode(self, x: Tensor, step: Step) -> Any:
        number, wide = 2**self.bits, x.double()
        centred = wide - wide.mean()
        width = self.deviations * centred.square().sum().div(max(1, len(x) - 1)).sqrt() / number
        bins = (centred / width.where(width > 0, 1) + number // 2).round().nan_to_num(0)
        codes = bins.clamp(0, number - 1).long()
        sums = torch.zeros(number, dtype=torch.float64, device=x.device).index_add_(0, codes, wide)
        # bincount would make the host wait for the GPU: it reads the largest code
        counts = codes.new_zeros(number).index_add_(0, codes, torch.ones_like(codes))
        means = (sums / counts.clamp(min=1)).to(torch.float32)
        payload = self.payload(*split_bits(codes.to(torch.int16), self.bits), means)
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        codes = join_bits(payload[:-1], self.bits, out.numel()).long()
        out += payload.means.to(out.dtype)[codes]


@lru_cache(maxsize=16)
def _payload(bits: int) -> PayloadType:
    """Bins in packed parts of ``widths_of`` bits, and their means."""
    hints = [(f"bins_{part}", Annotated[Tensor, Field("levels", 8 // part)]) for part in widths_of(bits)]
    hints += [("means", Annotated[Tensor, Field(METADATA)])]  # [2^bits] float32
    made: Any = NamedTuple("Bins", hints)  # type: ignore[misc] # at run time
    return made
