"""Compute-visible sparsification: the entries that change the bfloat16 of their weight.

Of Miahi and Belilovsky, 2026, "PULSELoCo", https://arxiv.org/abs/2602.03839, for pseudo-gradients. Entry p_i
is sent if bf16(w_i - p_i) differs from bf16(w_i), with the shared weights w: other entries do not change the
next forward pass in bfloat16. p must have the units of the weights: with local steps, or under
``feedback.scale=step``. Biased; an absolute compressor: an entry that is not sent is at most about 2^-7
|w_i|. 8 bytes per sent fp32 element, and one 4-byte count per segment.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.api import Codec, Sparse, Step, Traits, squared_norm, take


@dataclass(frozen=True, kw_only=True)
class Visible(Codec):
    """Keeps p_i iff bf16(w_i - p_i) != bf16(w_i). ``encode`` raises ``ValueError`` without the weights."""

    payload = Sparse
    traits = Traits(ragged=True)
    waits = ("S W + G", "S W + G", "")

    def encode(self, x: Tensor, step: Step) -> Sparse:
        weights = _weights(x, step)
        changed = (weights - x).to(torch.bfloat16) != weights.to(torch.bfloat16)
        return take(x, changed.nonzero().squeeze(1))

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(_weights(x, step)).item() / 2**13


def _weights(x: Tensor, step: Step) -> Tensor:
    """The weights of the layers, [d]."""
    if sum(own.numel() for own in step.weights) != x.numel():
        raise ValueError(f"Visible needs the {x.numel()} weights of segment {step.segment!r}")
    return torch.cat([own.reshape(-1) for own in step.weights])
