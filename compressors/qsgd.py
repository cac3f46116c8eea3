"""QSGD: random rounding of every entry to one of s levels of its bucket's norm.

Alistarh et al., 2017, https://arxiv.org/abs/1610.02132, section 3. Q(x_i) = norm sign(x_i) l / s, where l is
s |x_i| / norm, rounded up or down at random with mean s |x_i| / norm. Unbiased, with variance of at most
min(d / s^2, sqrt(d) / s) ||x||^2 for buckets of d entries under the L2 norm. Under the largest magnitude it
is (sqrt(1 + (d - 1) / s^2) - 1) / 2 ||x||^2: the worst bucket has one entry of level s and the others at s /
(s + sqrt(s^2 + d - 1)). An entry takes ``bits`` bits for a sign and a level, packed, and a bucket 4 bytes for
its norm. Deviation from the paper: bits are packed, not in Elias' code.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from compressors.api import (
    METADATA,
    Codec,
    Field,
    Knob,
    Plan,
    Step,
    Traits,
    is_count,
    require,
    require_choice,
    squared_norm,
)
from compressors.core import rules
from compressors.core.fields import PayloadType
from compressors.core.randomness import uniform
from compressors.encoding.packing import join_bits, split_bits, widths_of

MOST_BITS, NORMS = 15, ("l2", "max")


@dataclass(frozen=True, kw_only=True)
class QSGD(Codec):
    """Rounds every entry to one of s = ``levels`` levels between 0 and its bucket's norm.

    More levels mean less variance and more bits. If ``bits`` is null, it is the smallest number of bits for
    the levels. If ``levels`` is null, it is the largest number for these bits, 2^(bits - 1) - 1.
    ``bucket_size`` entries share a norm: the largest magnitude or, as in the paper's analysis, the L2 norm
    (``norm="l2"``), which has a larger distance between levels. Raises ``ValueError`` for values out of
    range, for another norm, and for more levels than the bits represent.
    """

    bits: int | None = 4
    levels: int | None = None
    bucket_size: int = 512
    norm: str = "max"

    traits = Traits(exact=False, dense=True, seeded=True, unbiased=True)
    knob = Knob("bits", lowest=2, highest=MOST_BITS)
    examples = ({"bits": 4}, {"bits": None, "levels": 10, "norm": "l2"}, {"bits": 2, "bucket_size": 100})
    usual_feedback = "none"

    def __post_init__(self) -> None:
        valid = self.bits is None or (is_count(self.bits, 2) and self.bits <= MOST_BITS)
        require(valid, "QSGD.bits", f"from 2 to {MOST_BITS}, or null for the fewest", self.bits)
        valid = self.levels is None or is_count(self.levels)
        require(valid, "QSGD.levels", "an integer >= 1, or null for as many as bits hold", self.levels)
        has_one = self.bits is not None or self.levels is not None
        require(has_one, "QSGD.levels", "an integer >= 1 if QSGD.bits is null", self.levels)
        most = 2 ** ((self.bits or MOST_BITS) - 1) - 1
        rule = f"at most {most}, which {self.bits or MOST_BITS} bits hold with a sign"
        require(self.levels is None or self.levels <= most, "QSGD.levels", rule, self.levels)
        require(is_count(self.bucket_size), "QSGD.bucket_size", "an integer >= 1", self.bucket_size)
        require_choice("QSGD.norm", NORMS, self.norm)

    @property
    def payload(self) -> PayloadType:
        return _payload(self.width, self.bucket_size)

    @property
    def width(self) -> int:
        """Bits of an entry."""
        return self.bits if self.bits is not None else 1 + self.num_levels.bit_length()

    @property
    def num_levels(self) -> int:
        """The number of levels s."""
        return self.levels if self.levels is not None else 2 ** ((self.bits or 0) - 1) - 1

    def check(self, plan: Plan) -> None:
        self.require_contraction(plan, self.variance_bound(self.bucket_size, Step(0, 0)))

    def encode(self, x: Tensor, step: Step) -> Any:
        wide = torch.promote_types(x.dtype, torch.float32)
        buckets = in_buckets(x.to(wide), self.bucket_size)
        norms = buckets.abs().amax(1) if self.norm == "max" else squared_norm(buckets).sqrt()
        norms = norms.to(torch.float32).clamp(max=torch.finfo(torch.float32).max)
        shares = buckets.abs() / norms.where(norms > 0, 1).to(wide).unsqueeze(1)
        drawn = uniform(step.derive_seed(shared=False), buckets.numel(), wide).view_as(buckets)
        levels = (shares * self.num_levels + drawn.to(x.device, non_blocking=True)).floor_()
        levels.clamp_(max=self.num_levels)  # rounding can make the norm smaller than an entry
        codes = (levels.to(torch.int16) << 1) | (buckets < 0)
        payload = self.payload(*split_bits(codes.flatten()[: x.numel()], self.width), norms)
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        codes = join_bits(payload[:-1], self.width, out.numel())
        values = (codes >> 1).to(out.dtype) * (1 - 2 * (codes & 1).to(out.dtype))
        scales = payload.norms.to(out.dtype) / self.num_levels
        out += (in_buckets(values, self.bucket_size) * scales.unsqueeze(1)).flatten()[: out.numel()]

    def rounding(self, size: int, step: Step) -> rules.Levels | None:
        if self.bucket_size % 8:  # kernels write whole bytes of codes for a bucket
            return None
        seed = step.derive_seed(shared=False)
        return rules.Levels(self.num_levels, self.width, self.bucket_size, self.norm, seed)

    def error_bound(self, x: Tensor, step: Step) -> float:
        """Under the L2 norm the paper's bound; (max / s)^2 / 4 per entry for ``norm="max"``."""
        if self.norm == "max":
            largest = in_buckets(x.double(), self.bucket_size).abs().amax(1)
            size = min(self.bucket_size, x.numel())
            return size * largest.square().sum().item() / (4 * self.num_levels**2)
        return self.variance_bound(x.numel(), step) * squared_norm(x).item()

    def variance_bound(self, size: int, step: Step) -> float:
        size, s = max(1, min(self.bucket_size, size)), self.num_levels
        if self.norm == "max":
            return (math.sqrt(1 + (size - 1) / s**2) - 1) / 2
        return min(size / s**2, math.sqrt(size) / s)


def in_buckets(x: Tensor, bucket_size: int) -> Tensor:
    """``x`` [d] as rows, one bucket each, padded with zeros."""
    size = max(1, min(bucket_size, x.numel()))
    return pad(x, (0, -x.numel() % size)).view(-1, size)


@lru_cache(maxsize=64)
def _payload(width: int, bucket_size: int) -> PayloadType:
    """Signs (the lowest bit) and levels in packed parts of ``widths_of`` bits, and the norms."""
    hints = [(f"codes_{part}", Annotated[Tensor, Field("levels", 8 // part)]) for part in widths_of(width)]
    hints += [("norms", Annotated[Tensor, Field(METADATA, bucket_size)])]  # [ceil(d / bucket_size)] float32
    made: Any = NamedTuple("Levels", hints)  # type: ignore[misc] # at run time
    return made
