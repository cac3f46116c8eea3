"""QSGD: random rounding of every entry to one of s levels of its bucket's norm.

Alistarh et al., 2017, https://arxiv.org/abs/1610.02132, section 3. Q(x_i) = norm sign(x_i) l / s, where l is
s |x_i| / norm, rounded up or down at random with mean s |x_i| / norm. Unbiased, with variance of at most
min(d / s^2, sqrt(d) / s) ||x||^2 for buckets of d entries. An entry takes ``bits`` bits for a sign and a
level, and a bucket 4 bytes for its norm. Deviation from the paper: no Elias code.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from compressors.api import METADATA, Codec, Field, Step, Traits, is_count, require, squared_norm
from compressors.core.fields import PayloadType
from compressors.encoding.packing import pack, unpack

BITS, NORMS = (2, 4, 8), ("l2", "max")


@dataclass(frozen=True, kw_only=True)
class QSGD(Codec):
    """Rounds every entry to one of s = 2^(bits - 1) - 1 levels between 0 and its bucket's norm.

    More bits mean more bytes and less variance. ``bucket_size`` entries share a norm: the largest magnitude
    or, as in the paper's analysis, the L2 norm (``norm="l2"``), which has a larger distance between levels.
    Raises ``ValueError`` for other settings.
    """

    bits: int = 4
    bucket_size: int = 512
    norm: str = "max"

    traits = Traits(exact=False, dense=True, seeded=True, unbiased=True)
    examples = ({"bits": 4}, {"bits": 8, "norm": "l2"}, {"bits": 2, "bucket_size": 100})

    def __post_init__(self) -> None:
        require(is_count(self.bits) and self.bits in BITS, "QSGD.bits", "2, 4 or 8", self.bits)
        require(is_count(self.bucket_size), "QSGD.bucket_size", "an integer >= 1", self.bucket_size)
        known = isinstance(self.norm, str) and self.norm in NORMS
        require(known, "QSGD.norm", f"one of {', '.join(NORMS)}", self.norm)

    @property
    def payload(self) -> PayloadType:
        return _payload(self.bits, self.bucket_size)

    @property
    def levels(self) -> int:
        """The number of levels s."""
        return 2 ** (self.bits - 1) - 1

    def encode(self, x: Tensor, step: Step) -> Any:
        wide = torch.promote_types(x.dtype, torch.float32)
        buckets = self._buckets(x.to(wide))
        norms = buckets.abs().amax(1)
        if self.norm == "l2":  # relative to the largest entry, so squares neither overflow nor vanish
            norms = norms * (buckets / norms.where(norms > 0, 1).unsqueeze(1)).norm(dim=1)
        norms = norms.to(torch.float32).clamp(max=torch.finfo(torch.float32).max)
        shares = buckets.abs() / norms.where(norms > 0, 1).to(wide).unsqueeze(1)
        generator = torch.Generator().manual_seed(step.derive_seed(shared=False))
        drawn = torch.rand(buckets.shape, generator=generator, dtype=wide)
        levels = (shares * self.levels + drawn.to(x.device, non_blocking=True)).floor_()
        levels.clamp_(max=self.levels)  # rounding can make the norm smaller than an entry
        codes = (levels.to(torch.uint8) << 1) | (buckets < 0)
        payload = self.payload(pack(codes.flatten()[: x.numel()], self.bits), norms)
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        codes = unpack(payload.codes, self.bits, out.numel())
        values = (codes >> 1).to(out.dtype) * (1 - 2 * (codes & 1).to(out.dtype))
        scales = payload.norms.to(out.dtype) / self.levels
        out += (self._buckets(values) * scales.unsqueeze(1)).flatten()[: out.numel()]

    def error_bound(self, x: Tensor, step: Step) -> float:
        """min(d / s^2, sqrt(d) / s) ||x||^2 of each bucket; (max / s)^2 / 4 per entry for ``norm="max"``."""
        size = min(self.bucket_size, x.numel())
        if self.norm == "max":
            largest = self._buckets(x.double()).abs().amax(1)
            return size * largest.square().sum().item() / (4 * self.levels**2)
        return min(size / self.levels**2, math.sqrt(size) / self.levels) * squared_norm(x).item()

    def _buckets(self, x: Tensor) -> Tensor:
        """``x`` [d] as rows, one bucket each, padded with zeros."""
        size = max(1, min(self.bucket_size, x.numel()))
        return pad(x, (0, -x.numel() % size)).view(-1, size)


@lru_cache(maxsize=64)
def _payload(bits: int, bucket_size: int) -> PayloadType:
    class Levels(NamedTuple):
        """Packed signs and levels, and the norms of the buckets."""

        codes: Annotated[Tensor, Field("levels", 8 // bits)]  # [ceil(d bits / 8)] uint8
        norms: Annotated[Tensor, Field(METADATA, bucket_size)]  # [ceil(d / bucket_size)] float32

    return Levels
