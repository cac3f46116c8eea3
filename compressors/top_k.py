"""Top-k: keep the k largest magnitudes.

Aji and Heafield, 2017, https://arxiv.org/abs/1704.05021; with error feedback Stich et al., 2018,
https://arxiv.org/abs/1809.07599. Biased; a (1 - k/d)-contraction. 8 bytes per sent fp32 element: the value
and a 4-byte index. Exactly k entries are sent: ties go to the lowest index, and NaN counts as larger than any
number.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.api import CodecWithDensity, Sparse, Step, Traits, take
from compressors.core.rules import Largest

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per entry


@dataclass(frozen=True, kw_only=True)
class TopK(CodecWithDensity):
    """Keeps k = max(1, floor(density * d)) entries of every segment of d elements.

    A higher density sends more and keeps a smaller residual; ``schedule`` varies it over the epochs. Raises
    ``ValueError`` for a density outside (0, 1].
    """

    payload = Sparse
    traits = Traits(lossless_at={"density": 1.0, "schedule": "constant"})
    examples = (
        {"density": 0.1},
        {"density": 0.1, "schedule": {"kind": "step", "milestones": [1, 3], "factor": 0.7}},
    )

    def rule(self, size: int, step: Step, workers: range) -> Largest:
        return Largest(self.elements_at(step, size))

    def encode(self, x: Tensor, step: Step) -> Sparse:
        k = self.elements_at(step, x.numel())
        kept = largest(magnitude_keys(x.contiguous()), k)
        # Exactly k are kept, so the host does not wait for a count from a GPU
        where = kept.nonzero() if x.device.type == "cpu" else torch.nonzero_static(kept, size=k)
        return take(x, where.squeeze(1))


def magnitude_keys(x: Tensor) -> Tensor:
    """Integers >= 0 with the order of the magnitudes of ``x`` [d], contiguous; NaN is above any number."""
    bits = x.view(_BITS[x.itemsize])
    return bits & torch.iinfo(bits.dtype).max  # without the sign bit


def largest(keys: Tensor, k: int) -> Tensor:
    """Which of ``keys`` [d] are the k largest, [d] bool; ties go to the lowest index."""
    smallest = keys.topk(k).values[-1]  # among the k largest
    above, equal = keys > smallest, keys == smallest
    return above | (equal & (equal.cumsum(0) <= k - above.sum()))
