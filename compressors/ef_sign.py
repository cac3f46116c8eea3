"""EF-sign: the sign of every entry times the mean magnitude of its layer.

Karimireddy et al., 2019, https://arxiv.org/abs/1901.09847, algorithm 1: C(p) = (||p||_1 / d) sign(p), for
every layer separately. Biased; a contraction with ||p - C(p)||^2 = ||p||^2 - ||p||_1^2 / d. 1 bit per element
and 4 bytes per layer. 0 counts as positive, so a sign takes one bit. Deviation from the paper: the residual
is in units of the gradient; ``feedback.scale=step`` is the paper's p = lr g + e. In the authors' code
(https://github.com/epfml/error-feedback-SGD) momentum and weight decay come before the compression, so g is
the worker's velocity; here the optimizer applies both to the mean, after the compression.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from compressors.api import METADATA, Codec, Field, Step, Traits, squared_norm
from compressors.core import rules
from compressors.core.norms import absolute_sum
from compressors.core.segments import edges_of
from compressors.encoding.packing import pack, unpack


class Signs(NamedTuple):
    """Packed signs, and the mean magnitude of every layer."""

    bits: Annotated[Tensor, Field("signs", 8)]  # [ceil(d / 8)] uint8, 1 for an entry >= 0
    scales: Annotated[Tensor, Field(METADATA)]  # [L] float32


@dataclass(frozen=True, kw_only=True)
class EFSign(Codec):
    """Sends the signs of all entries, and ||p||_1 / d of every layer, in both scopes."""

    payload = Signs
    traits = Traits(exact=False, dense=True)

    def encode(self, x: Tensor, step: Step) -> Signs:
        means = [absolute_sum(layer) / max(1, layer.numel()) for layer in step.layers(x)]
        payload = Signs(pack((x >= 0).to(torch.uint8), 1), torch.stack(means).to(torch.float32))
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Signs, out: Tensor, step: Step) -> None:
        signs = 2 * unpack(payload.bits, 1, out.numel()).to(out.dtype) - 1
        for layer, own, scale in zip(step.layers(out), step.layers(signs), payload.scales, strict=True):
            layer += own * scale

    def rounding(self, size: int, step: Step) -> rules.Signs:
        return rules.Signs(edges_of(step.shapes or ((size,),)))

    def error_bound(self, x: Tensor, step: Step) -> float:
        """||x||^2 - ||x||_1^2 / d, summed over layers, and a margin for the rounding of scales."""
        left = [squared_norm(y) - absolute_sum(y) ** 2 / max(1, y.numel()) for y in step.layers(x)]
        return sum(left, torch.zeros(())).item() + 1e-6 * squared_norm(x).item()
