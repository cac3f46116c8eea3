"""Top-k: keep the k largest magnitudes.

Aji and Heafield, 2017, https://arxiv.org/abs/1704.05021; with error feedback Stich et al., 2018,
https://arxiv.org/abs/1809.07599. Biased; a (1 - k/d)-contraction. 8 bytes per kept fp32 element:
the value and a 4-byte index. Exactly k entries are sent: of equal magnitudes those at the lowest
indices; NaN counts as larger than any number.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.api import Context, elements_of, squared_norm, unsent_share
from compressors.checks import require_density
from compressors.density import density_schedule
from compressors.payloads import Sparse, take_columns
from compressors.rules import Largest

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an entry


@dataclass(frozen=True, kw_only=True)
class TopK:
    """Keeps k = max(1, floor(density * d)) entries of every segment of d elements.

    A higher density sends more and forgets less. ``encode`` sends ``density``; a reducer
    (``build_reducer``) follows the ``schedule``. Raises ``ValueError`` for a density outside (0, 1].
    """

    density: float
    schedule: Any = field(default="constant", repr=False)  # of the density; see density.py

    payload = Sparse
    linear = False
    ragged = False
    randomized = False

    def __post_init__(self) -> None:
        require_density("TopK", self.density)
        object.__setattr__(self, "schedule", density_schedule(self.schedule, self.density))

    def rule(self, size: int, context: Context, workers: range) -> Largest:
        return Largest(elements_of(self.density, size))

    def encode(self, x: Tensor, context: Context) -> Sparse:
        return self.encode_rows(x.unsqueeze(0), context, range(1))[0]

    def encode_rows(self, rows: Tensor, context: Context, workers: range) -> tuple[Sparse, np.ndarray]:
        num_rows, size = rows.shape
        k = elements_of(self.density, size)
        bits = rows.contiguous().view(_BITS[rows.itemsize])
        keys = bits & torch.iinfo(bits.dtype).max  # without the sign; they compare as magnitudes do
        smallest = keys.topk(k, dim=1).values[:, -1:]  # [R, 1] of those to keep
        above, equal = keys > smallest, keys == smallest
        ties = k - above.sum(1, keepdim=True)
        kept = above | (equal & (equal.cumsum(1) <= ties))
        columns = kept.nonzero()[:, 1].view(num_rows, k)
        return take_columns(rows, columns), np.full(num_rows, k)

    def error_bound(self, x: Tensor) -> float:
        return unsent_share(self.density, x.numel()) * squared_norm(x).item()
