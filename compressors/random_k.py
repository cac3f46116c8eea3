"""Random-k: keep k coordinates drawn at random.

Stich et al., 2018, https://arxiv.org/abs/1809.07599; shared coordinates as in Foroutan Eghlidi and Jaggi,
2020, https://arxiv.org/abs/2009.09271. Biased, because values are not scaled up by d / k (error feedback
compensates for omitted entries); a (1 - k/d)-contraction in expectation. With ``unbiased`` values are
multiplied by d / k, and the variance is (d / k - 1) ||x||^2. Per sent fp32 element 4 bytes with shared
coordinates, and 8 with separate coordinates, whose indices are sent.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    CodecWithDensity,
    Plan,
    Sparse,
    Step,
    Traits,
    require_flag,
    squared_norm,
    take,
)
from compressors.core.payloads import as_indices, index_dtype
from compressors.core.randomness import are_drawn_on, coordinates_on, distinct_coordinates
from compressors.core.rules import Drawn
from compressors.parts.knob import DENSITY

_UNROTATED = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class RandomK(CodecWithDensity):
    """Keeps k = max(1, floor(density * d)) distinct coordinates of every segment, drawn in each step.

    With ``shared_coordinates`` all workers draw the same coordinates from the seed, so no index is sent and
    an all-reduce computes the mean. ``unbiased`` multiplies values by d / k, for training without error
    feedback, under which the residuals of small layers would grow. ``schedule`` varies the density over the
    epochs. Raises ``ValueError`` for a density outside (0, 1].
    """

    shared_coordinates: bool = True
    unbiased: bool = False

    payload = Sparse
    knob = DENSITY._replace(dense_at=1.0)  # no index is sent
    examples = (
        {"density": 0.1, "shared_coordinates": False},
        {"density": 0.1, "shared_coordinates": True},
        {"density": 0.1, "shared_coordinates": False, "unbiased": True},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_flag("RandomK.shared_coordinates", self.shared_coordinates)
        require_flag("RandomK.unbiased", self.unbiased)

    @property
    def traits(self) -> Traits:
        lossless_at = {"density": 1.0, "schedule": "constant"}
        return Traits(
            linear=self.shared_coordinates,
            exact=not self.unbiased,
            drawn=True,
            seeded=True,
            unbiased=self.unbiased,
            lossless_at=lossless_at,
        )

    def check(self, plan: Plan) -> None:
        super().check(plan)
        if self.unbiased:
            lowest = min(self.schedule.at(epoch, self.density) for epoch in range(len(plan.rates)))
            size = math.ceil(2 / lowest) - 1  # of the largest layer that sends one entry: the worst one
            self.require_contraction(plan, size - 1)

    def rule(self, size: int, step: Step, workers: range) -> Drawn | None:
        if self.unbiased:
            return None  # kernels do not multiply values
        draws = self._draws(size, step, workers)
        return _drawn(np.stack([distinct_coordinates(*own).numpy() for own in draws]), size)

    def rule_on(self, device: torch.device, size: int, step: Step, workers: range) -> Drawn | None:
        if self.unbiased or not are_drawn_on(device, size, self.elements_at(step, size)):
            return self.rule(size, step, workers)
        draws = self._draws(size, step, workers)
        return _drawn(torch.stack([coordinates_on(*own, device) for own in draws]), size)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        where = coordinates_on(*self._draw(x.numel(), step), x.device)
        if not self.unbiased:
            return take(x, where)
        kept, share = x.index_select(0, where), x.numel() / max(1, len(where))
        sent = kept * share
        x.index_copy_(0, where, kept - sent)
        return Sparse(sent, where.to(index_dtype(x.numel())))

    def error_bound(self, x: Tensor, step: Step) -> float:
        if not self.unbiased:
            return super().error_bound(x, step)
        return self.variance_bound(x.numel(), step) * squared_norm(x).item()

    def variance_bound(self, size: int, step: Step) -> float:
        return size / self.elements_at(step, size) - 1 if self.unbiased else math.inf

    def _draw(self, size: int, step: Step) -> tuple[int, int, int]:
        """The arguments of ``distinct_coordinates``."""
        return step.derive_seed(shared=self.shared_coordinates), size, self.elements_at(step, size)

    def _draws(self, size: int, step: Step, workers: range) -> list[tuple[int, int, int]]:
        """The same of every worker, or one of all."""
        draws = workers if not self.shared_coordinates else range(1)
        return [self._draw(size, step._replace(worker=worker)) for worker in draws]


def _drawn(positions: np.ndarray | Tensor, size: int) -> Drawn:
    def payload(values: Tensor, num_rows: int) -> Sparse:
        times = num_rows // len(positions)
        if isinstance(positions, Tensor):
            return Sparse(values, positions.repeat(times, 1).ravel().to(index_dtype(size)))
        return Sparse(values, as_indices(positions.repeat(times, 0).ravel(), size, values.device))

    return Drawn(positions, _UNROTATED, payload)
