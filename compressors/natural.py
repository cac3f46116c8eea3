"""Natural compression: random rounding of every entry to one of the two nearest powers of two.

Horvath et al., 2019, https://arxiv.org/abs/1905.10988, definition 1. |x| = 2^e m with 1 <= m < 2 becomes 2^(e
+ 1) with probability m - 1, else 2^e. Unbiased, with variance of at most ||x||^2 / 8. 9 bits per element: an
exponent of 8 bits and a sign. Deviations from the paper: magnitudes below 2^-126, the smallest normal fp32
number, become 0 or 2^-126, still unbiased; none is rounded beyond fp32's range; fp64 is rounded to fp32
first.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import Codec, Field, Step, Traits, squared_norm
from compressors.core import rules
from compressors.core.randomness import random_bits
from compressors.encoding.packing import pack, unpack

MANTISSA, INFINITE = 23, 0x7F800000  # bits of a float32's mantissa; the bits of infinity


class Powers(NamedTuple):
    """Exponents as in float32, 0 for a zero, and packed signs."""

    exponents: Annotated[Tensor, Field("exponents", 1)]  # [d] uint8
    signs: Annotated[Tensor, Field("signs", 8)]  # [ceil(d / 8)] uint8, 1 for a negative entry


@dataclass(frozen=True, kw_only=True)
class Natural(Codec):
    """Adds random bits to the mantissa of every entry, and sends the exponent and the sign."""

    payload = Powers
    traits = Traits(exact=False, dense=True, seeded=True, unbiased=True)
    usual_feedback = "none"

    def encode(self, x: Tensor, step: Step) -> Powers:
        bits = x.to(torch.float32).contiguous().view(torch.int32)
        drawn = random_bits(step.derive_seed(shared=False), x.numel()) >> np.uint32(32 - MANTISSA)
        random = torch.from_numpy(drawn.view(np.int32)).to(x.device, non_blocking=True)
        magnitudes = (bits & 0x7FFFFFFF).clamp(max=INFINITE)
        exponents = (magnitudes + random) >> MANTISSA  # a carry out of the mantissa rounds up
        exponents = exponents.where(magnitudes == INFINITE, exponents.clamp(max=254))
        payload = Powers(exponents.to(torch.uint8), pack((bits < 0).to(torch.uint8), 1))
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Powers, out: Tensor, step: Step) -> None:
        magnitudes = (payload.exponents.to(torch.int32) << MANTISSA).view(torch.float32).to(out.dtype)
        negative = unpack(payload.signs, 1, out.numel()).to(torch.bool)
        out += torch.where(negative, -magnitudes, magnitudes)

    def rounding(self, size: int, step: Step) -> rules.Powers:
        return rules.Powers(step.derive_seed(shared=False))

    def error_bound(self, x: Tensor, step: Step) -> float:
        return self.variance_bound(x.numel(), step) * squared_norm(x).item()

    def variance_bound(self, size: int, step: Step) -> float:
        return 1 / 8
