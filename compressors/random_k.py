"""Random-k: keep k coordinates drawn at random.

Stich et al., 2018, https://arxiv.org/abs/1809.07599; shared coordinates as in Foroutan Eghlidi and
Jaggi, 2020, https://arxiv.org/abs/2009.09271. Biased, since kept values are not scaled up by d / k
(error feedback makes up for what is left out); a (1 - k/d)-contraction in expectation. Per kept
fp32 element 4 bytes with shared coordinates, 8 with own ones, whose indices travel.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.api import Context, elements_of, squared_norm, unsent_share
from compressors.checks import require_density, require_flag
from compressors.density import density_schedule
from compressors.payloads import Sparse, as_indices, take_columns
from compressors.randomness import distinct_coordinates
from compressors.rules import Drawn

_UNROTATED = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class RandomK:
    """Keeps k = max(1, floor(density * d)) distinct coordinates of every segment, new each step.

    With ``shared_coordinates`` all workers draw the same ones from the seed, so that no index
    travels and an all-reduce aggregates. ``encode`` sends ``density``; a reducer
    (``build_reducer``) follows the ``schedule``. Raises ``ValueError`` for a density outside (0, 1].
    """

    density: float
    shared_coordinates: bool = True
    schedule: Any = field(default="constant", repr=False)  # of the density; see density.py

    payload = Sparse
    ragged = False
    randomized = True

    def __post_init__(self) -> None:
        require_density("RandomK", self.density)
        object.__setattr__(self, "schedule", density_schedule(self.schedule, self.density))
        require_flag("RandomK.shared_coordinates", self.shared_coordinates)

    @property
    def linear(self) -> bool:
        return self.shared_coordinates

    def rule(self, size: int, context: Context, workers: range) -> Drawn:
        positions = self._draw(size, context, workers).numpy()

        def payload(values: Tensor, num_rows: int) -> Sparse:
            columns = positions if len(positions) == num_rows else np.tile(positions, (num_rows, 1))
            return Sparse(values, as_indices(columns.ravel(), size).to(values.device))

        return Drawn(positions, _UNROTATED, payload)

    def encode(self, x: Tensor, context: Context) -> Sparse:
        workers = range(context.worker, context.worker + 1)
        return self.encode_rows(x.unsqueeze(0), context, workers)[0]

    def encode_rows(self, rows: Tensor, context: Context, workers: range) -> tuple[Sparse, np.ndarray]:
        num_rows, size = rows.shape
        drawn = self._draw(size, context, workers)
        kept = take_columns(rows, drawn.expand(num_rows, -1).to(rows.device))
        return kept, np.full(num_rows, drawn.shape[1])

    def _draw(self, size: int, context: Context, workers: range) -> Tensor:
        """Ascending positions, [1, k] for all workers or [W, k]."""
        k = elements_of(self.density, size)
        if self.shared_coordinates:
            return distinct_coordinates(context.derive_seed(shared=True), size, k).unsqueeze(0)
        seeds = (context._replace(worker=worker).derive_seed(shared=False) for worker in workers)
        return torch.stack([distinct_coordinates(seed, size, k) for seed in seeds])

    def error_bound(self, x: Tensor) -> float:
        return unsent_share(self.density, x.numel()) * squared_norm(x).item()
