"""Hard threshold: keep every entry of magnitude at least lambda.

Strom, 2015; Sahu et al., "Rethinking gradient sparsification as total error minimization", NeurIPS
2021, https://arxiv.org/abs/2108.00951, who show that one constant threshold minimises the total
error of a whole training for a given number of elements sent. Biased; an absolute compressor:
||x - C(x)||^2 <= d lambda^2. 8 bytes per kept fp32 element, and one 4-byte count per segment,
since workers send different numbers of entries. Strom sends the sign times lambda; like the paper
of 2021 this method sends the exact value.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from compressors.api import Context
from compressors.checks import is_count, is_real, require, require_density
from compressors.payloads import Sparse, index_dtype, take

_CHUNK = 2**16  # entries whose magnitudes and mask stay in cache: twice as fast as one long pass


@dataclass(frozen=True, kw_only=True)
class HardThreshold:
    """Keeps x_i iff |x_i| >= threshold; the same in every scope, as no entry depends on another.

    A higher threshold sends less. With ``threshold=None``, ``for_model`` sets the paper's rule
    1 / (2 sqrt(k)), k = density * D being the elements to expect per step. Raises ``ValueError``
    for a negative or non-finite threshold, and when both or neither of the two are given.
    """

    threshold: float | None = None
    density: float | None = None

    linear = False
    ragged = True
    randomized = False

    def __post_init__(self) -> None:
        if self.threshold is None:
            require_density("HardThreshold", self.density)
        else:
            valid = is_real(self.threshold) and self.threshold >= 0
            require(valid, "HardThreshold.threshold", "a finite number >= 0", self.threshold)

    def for_model(self, num_parameters: int) -> Self:
        """This threshold, or the paper's rule for a model of ``num_parameters``."""
        require(is_count(num_parameters), "num_parameters", "an integer >= 1", num_parameters)
        if self.threshold is not None:
            return replace(self, density=None)
        threshold = 1 / (2 * math.sqrt(self.density * num_parameters))
        return replace(self, threshold=threshold, density=None)

    def encode(self, x: Tensor, context: Context) -> Sparse:
        return self.encode_rows(x.unsqueeze(0), context, range(1))[0]

    def encode_rows(self, rows: Tensor, context: Context, workers: range) -> tuple[Sparse, Tensor]:
        require(self.threshold is not None, "HardThreshold.threshold", "set, by for_model()", None)
        flat = rows.view(-1)
        size = _CHUNK if flat.device.type == "cpu" else flat.numel()
        kept = [
            torch.nonzero(chunk.abs() >= self.threshold).squeeze(1).add_(start)
            for start, chunk in zip(range(0, flat.numel(), size), flat.split(size), strict=True)
        ]
        positions = torch.cat(kept) if len(kept) > 1 else kept[0]
        values, indices = take(flat, positions)
        if len(rows) == 1:
            return Sparse(values, indices), torch.tensor([len(values)])
        owners = positions.div(rows.shape[1], rounding_mode="floor")
        indices = positions.remainder_(rows.shape[1]).to(index_dtype(rows[0]))
        return Sparse(values, indices), owners.cpu().bincount(minlength=len(rows))

    def error_bound(self, x: Tensor) -> float:
        return x.numel() * self.threshold**2
