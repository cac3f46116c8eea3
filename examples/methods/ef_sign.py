"""EF-sign: the sign of every entry times the mean magnitude of its layer.

Karimireddy et al., 2019, https://arxiv.org/abs/1901.09847. Biased. 1 bit per element, 4 bytes per layer.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from compressors.api import METADATA, Codec, Field, Step, Traits, squared_norm
from compressors.encoding.packing import pack, unpack


class Signs(NamedTuple):
    bits: Annotated[Tensor, Field("signs", 8)]  # [ceil(d / 8)] uint8: 8 elements per entry
    scales: Annotated[Tensor, Field(METADATA)]  # [L], one per layer of the segment


@dataclass(frozen=True, kw_only=True)
class EFSign(Codec):
    payload = Signs
    traits = Traits(exact=False, dense=True)  # it rounds, and represents every element

    def encode(self, x: Tensor, step: Step) -> Signs:
        scales = torch.stack([layer.abs().mean() for layer in step.layers(x)])
        payload = Signs(pack((x >= 0).to(torch.uint8), 1), scales)
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Signs, out: Tensor, step: Step) -> None:
        signs = 2 * unpack(payload.bits, 1, out.numel()).to(out.dtype) - 1
        for layer, own, scale in zip(step.layers(out), step.layers(signs), payload.scales, strict=True):
            layer += own * scale

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()
