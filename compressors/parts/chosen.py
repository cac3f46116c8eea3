"""The codec of positions that all workers agreed on in a step."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Codec, Traits
from compressors.core.norms import squared_norm
from compressors.core.payloads import Sparse, as_indices, take
from compressors.core.rules import Drawn
from compressors.core.segments import Step

_UNROTATED = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen(Codec):
    """Keeps the entries at ``where`` [k] int64, ascending."""

    where: np.ndarray

    payload = Sparse
    traits = Traits(linear=True)

    def rule(self, size: int, step: Step, workers: range) -> Drawn:
        def payload(values: Tensor, num_rows: int) -> Sparse:
            everyones = np.tile(self.where, num_rows)
            return Sparse(values, as_indices(everyones, size, values.device))

        return Drawn(self.where[None], _UNROTATED, payload)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        return take(x, torch.from_numpy(self.where).to(x.device, non_blocking=True))

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()
