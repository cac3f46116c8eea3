"""FP4: every entry as a floating-point number of one sign bit, three exponent bits and no mantissa (E3M0).

Of Douillard et al., 2025, "Streaming DiLoCo", https://arxiv.org/abs/2501.18512, for pseudo-gradients. An
entry becomes the nearest of 0 and plus or minus m / 64, m / 32, ..., m, with the largest magnitude m of its
bucket; of two equally near ones, the larger. The mean is computed in fp32. Biased; an error is at most the
larger of a third of the entry and m / 128. 4 bits per entry, and 4 bytes per bucket. The scale m and the
bucket are choices of this project.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from compressors.api import METADATA, Codec, Field, Step, Traits, is_count, require, squared_norm
from compressors.core.fields import PayloadType
from compressors.encoding.packing import pack, unpack
from compressors.qsgd import in_buckets

MANTISSA, LARGEST = 23, 7  # bits of a float32's mantissa; the exponent of m
ZERO = 127 - LARGEST  # a float32's exponent of m / 128, half of the smallest number


@dataclass(frozen=True, kw_only=True)
class FP4(Codec):
    """Rounds every entry to 0 or a power of two, times the largest magnitude of its ``bucket_size`` entries.

    A smaller bucket rounds fewer small entries to 0 and sends more scales. Raises ``ValueError`` for a
    ``bucket_size`` below 1.
    """

    bucket_size: int = 512

    traits = Traits(exact=False, dense=True)
    examples = ({}, {"bucket_size": 100})
    usual_feedback = "none"

    def __post_init__(self) -> None:
        require(is_count(self.bucket_size), "FP4.bucket_size", "an integer >= 1", self.bucket_size)

    @property
    def payload(self) -> PayloadType:
        return _payload(self.bucket_size)

    def encode(self, x: Tensor, step: Step) -> Any:
        wide = torch.promote_types(x.dtype, torch.float32)
        buckets = in_buckets(x.to(wide), self.bucket_size)
        scales = buckets.abs().amax(1).to(torch.float32).clamp(max=torch.finfo(torch.float32).max)
        shares = buckets.abs() / scales.where(scales > 0, 1).to(wide).unsqueeze(1)
        bits = shares.to(torch.float32).view(torch.int32)
        rounded = (bits + (1 << MANTISSA - 1)) >> MANTISSA  # a carry out of the mantissa rounds up
        exponents = (rounded - ZERO).clamp(min=1, max=LARGEST).where(bits >= ZERO << MANTISSA, 0)
        codes = (exponents.to(torch.uint8) << 1) | (buckets < 0)
        payload = self.payload(pack(codes.flatten()[: x.numel()], 4), scales)
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        codes = unpack(payload.codes, 4, out.numel()).to(torch.int32)
        exponents = codes >> 1
        powers = ((exponents + ZERO) << MANTISSA).view(torch.float32).to(out.dtype)
        values = powers.where(exponents > 0, 0) * (1 - 2 * (codes & 1))
        scaled = in_buckets(values, self.bucket_size) * payload.scales.to(out.dtype).unsqueeze(1)
        out += scaled.flatten()[: out.numel()]

    def error_bound(self, x: Tensor, step: Step) -> float:
        return self.norm_bound(x.numel(), step)[0] ** 2 * squared_norm(x).item()

    def norm_bound(self, size: int, step: Step) -> tuple[float, float]:
        """m has no error, and no other entry one above the larger of a third and m / 128."""
        others = max(1, min(self.bucket_size, size)) - 1
        return math.sqrt(min(1 / 9 + others / 2**14, others / (others + 1))), 0.0


@lru_cache(maxsize=64)
def _payload(bucket_size: int) -> PayloadType:
    """Signs (the lowest bit) and exponents in 4 bits, and the scales."""
    hints = [("codes", Annotated[Tensor, Field("levels", 2)])]  # [ceil(d / 2)] uint8
    hints += [("scales", Annotated[Tensor, Field(METADATA, bucket_size)])]  # [ceil(d / bucket_size)] float32
    made: Any = NamedTuple("Floats", hints)  # type: ignore[misc] # at run time
    return made
