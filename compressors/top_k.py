"""Top-k: keep the k largest magnitudes.

Aji and Heafield, 2017, https://arxiv.org/abs/1704.05021; with error feedback Stich et al., 2018,
https://arxiv.org/abs/1809.07599. Biased; a (1 - k/d)-contraction. 8 bytes per sent fp32 element: the value
and a 4-byte index. Exactly k entries are sent: ties go to the lowest index, and NaN counts as larger than any
number.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from compressors.api import CodecWithDensity, Sparse, Step, Traits, take
from compressors.core.rules import Largest
from compressors.parts.searches import positions_of_largest


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
    waits = ("G", "G", "")

    def norm_bound(self, size: int, step: Step) -> tuple[float, float]:
        return math.sqrt(1 - self.elements_at(step, size) / max(1, size)), 0.0

    def rule(self, size: int, step: Step, workers: range) -> Largest:
        return Largest(self.elements_at(step, size))

    def encode(self, x: Tensor, step: Step) -> Sparse:
        return take(x, positions_of_largest(x, self.elements_at(step, x.numel())))
