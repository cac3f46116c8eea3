"""TernGrad: random rounding of every entry to 0 or to plus or minus the largest magnitude of its layer.

Wen et al., 2017, https://arxiv.org/abs/1705.07878, equations 1 to 4 and section 3.3. With s = max |x| of a
layer, an entry becomes s sign(x) with probability |x| / s, else 0. Unbiased without clipping, with variance s
||x||_1 - ||x||^2. Magnitudes above ``clip`` standard deviations of the layer are first clipped to that, which
is biased. 1.6 bits per element in base 3 (2 bits with ``values_per_byte=4``) and 4 bytes per layer.
Deviations from the paper: every worker has its own s (the paper's workers may share the largest, which saves
bits of a server's reply only), and a layer of equal entries, such as of one entry, is not clipped to 0. The
authors' release (https://github.com/wenwei202/terngrad) takes ``clip`` standard deviations themselves for s,
also where no magnitude is that large; here s is the largest magnitude after clipping, as in the paper.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from compressors.api import (
    METADATA,
    Codec,
    Field,
    Plan,
    Step,
    Traits,
    is_count,
    is_real,
    require,
    squared_norm,
)
from compressors.core import rules
from compressors.core.fields import PayloadType
from compressors.core.norms import wide_sum
from compressors.core.randomness import uniform
from compressors.core.segments import edges_of
from compressors.encoding.packing import pack, pack_ternary, unpack, unpack_ternary
from compressors.parts.gaussian import refuse_growth


@dataclass(frozen=True, kw_only=True)
class TernGrad(Codec):
    """Rounds every entry at random to -s, 0 or s, for a scale s of each layer, in both scopes.

    A smaller ``clip`` means less variance and more bias; null does not clip. ``values_per_byte`` is 5 or 4;
    5 takes fewer bytes and more operations. Raises ``ValueError`` for other values.
    """

    clip: float | None = 2.5
    values_per_byte: int = 5

    examples = ({}, {"clip": None, "values_per_byte": 4})
    usual_feedback = "none"

    def __post_init__(self) -> None:
        valid = self.clip is None or (is_real(self.clip) and self.clip > 0)
        require(valid, "TernGrad.clip", "> 0, or null for no clipping", self.clip)
        valid = is_count(self.values_per_byte) and self.values_per_byte in (4, 5)
        require(valid, "TernGrad.values_per_byte", "4 or 5", self.values_per_byte)

    @property
    def payload(self) -> PayloadType:
        return _payload(self.values_per_byte)

    @property
    def traits(self) -> Traits:
        return Traits(exact=False, dense=True, seeded=True, unbiased=self.clip is None)

    def check(self, plan: Plan) -> None:
        refuse_growth(self, plan, type(self).__name__)

    def encode(self, x: Tensor, step: Step) -> Any:
        wide = torch.promote_types(x.dtype, torch.float32)
        drawn = uniform(step.derive_seed(shared=False), x.numel(), wide).to(x.device, non_blocking=True)
        scales = torch.stack([self._scale(layer) for layer in step.layers(x)])
        for own, scale in zip(step.layers(drawn), scales, strict=True):
            own *= scale
        sent = drawn < x.abs()
        codes = sent.to(torch.uint8) << (x < 0)  # 1 for s, 2 for -s
        packed = pack(codes, 2) if self.values_per_byte == 4 else pack_ternary(codes)
        payload = self.payload(packed, scales)
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        size = out.numel()
        codes = (
            unpack(payload.codes, 2, size)
            if self.values_per_byte == 4
            else unpack_ternary(payload.codes, size)
        )
        signs = (codes & 1).to(out.dtype) - (codes >> 1).to(out.dtype)
        for layer, own, scale in zip(step.layers(out), step.layers(signs), payload.scales, strict=True):
            layer += own * scale

    def rounding(self, size: int, step: Step) -> rules.Ternary:
        edges, seed = edges_of(step.shapes or ((size,),)), step.derive_seed(shared=False)
        return rules.Ternary(edges, self.clip, self.values_per_byte, seed)

    def error_bound(self, x: Tensor, step: Step) -> float:
        """The expected error: c (s - c) + (|x| - c)^2 of every entry, with c = min(|x|, s)."""
        expected = 0.0
        for layer in step.layers(x.double()):
            magnitudes, scale = layer.abs(), self._scale(layer).double()
            clipped = magnitudes.clamp(max=scale)
            expected += (clipped * (scale - clipped)).sum().item() + squared_norm(magnitudes - clipped).item()
        return expected

    def variance_bound(self, size: int, step: Step) -> float:
        """The bound of QSGD for a bucket under the largest magnitude, with one level."""
        return (math.sqrt(size) - 1) / 2 if self.clip is None else math.inf

    def _scale(self, layer: Tensor) -> Tensor:
        """s of one layer, float32: the largest magnitude after clipping."""
        size = max(1, layer.numel())
        largest = layer.abs().amax().double() if layer.numel() else layer.new_zeros((), dtype=torch.float64)
        if self.clip is not None:
            mean, squares = wide_sum(layer) / size, squared_norm(layer) / size
            variance = squares - mean * mean
            spreads = variance > 1e-12 * squares  # false for equal entries, up to rounding
            largest = torch.where(spreads, largest.minimum(self.clip * variance.sqrt()), largest)
        return largest.clamp(max=torch.finfo(torch.float32).max).to(torch.float32)


@lru_cache(maxsize=2)
def _payload(values_per_byte: int) -> PayloadType:
    class Ternary(NamedTuple):
        """Packed codes, 0 for 0, 1 for s and 2 for -s, and s of every layer."""

        codes: Annotated[Tensor, Field("ternary", values_per_byte)]  # [ceil(d / 5)] or [ceil(d / 4)] uint8
        scales: Annotated[Tensor, Field(METADATA)]  # [L] float32

    return Ternary
