"""Stride: keep every m-th entry, from an offset that changes in each step. An example without a paper.

Biased. 4 bytes per sent fp32 element.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.api import Codec, Knob, Sparse, Step, Traits, is_count, require, squared_norm, take


@dataclass(frozen=True, kw_only=True)
class Stride(Codec):
    """Keeps the entries whose position is step mod ``every``. Raises ``ValueError`` for every < 1."""

    every: int

    payload = Sparse  # class of the payload that encode returns
    traits = Traits(linear=True, drawn=True, seeded=True, lossless_at={"every": 1})
    knob = Knob("every", slope=-1)  # the setting that changes the bytes: a higher value sends less
    examples = ({"every": 4},)  # settings that the contract is tested with

    def __post_init__(self) -> None:
        require(is_count(self.every), "Stride.every", "an integer >= 1", self.every)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        first = min(step.number % self.every, x.numel())  # a short layer often has no such entry
        return take(x, torch.arange(first, x.numel(), self.every, device=x.device))

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()
