"""Hard threshold: keep every entry of magnitude at least lambda.

Strom, 2015; Sahu et al., "Rethinking gradient sparsification as total error minimization", NeurIPS 2021,
https://arxiv.org/abs/2108.00951, who show that one constant threshold minimises the total error of a whole
training for a given number of elements sent. Biased; an absolute compressor: ||x - C(x)||^2 <= d lambda^2. 8
bytes per sent fp32 element, and one 4-byte count per segment, because workers send different numbers of
entries. Strom sends the sign times lambda; this method sends the exact value, as Sahu et al. do.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from compressors.api import AtLeast, Codec, Plan, Sparse, Step, Traits, at_least, is_real, require, take
from compressors.core.checks import require_density
from compressors.parts.knob import THRESHOLD


@dataclass(frozen=True, kw_only=True)
class HardThreshold(Codec):
    """Keeps x_i iff |x_i| >= threshold or x_i is NaN. The selection is the same in both scopes.

    A higher threshold sends less. With ``threshold=None``, ``for_model`` sets the paper's rule 1 / (2
    sqrt(k)), where k = density * D is the expected number of elements per step. With ``follows="rate"`` the
    threshold of a step is lambda times its learning rate, or the mean rate of the local steps since the last
    exchange: pseudo-gradients fall with that rate. Raises ``ValueError`` for a negative or non-finite
    threshold, without a threshold for a density outside (0, 1] and for ``follows``, for another ``follows``,
    and under ``follows="rate"`` in a step whose rate is 0: everything would be sent, and have no effect.
    """

    threshold: float | None = None
    density: float | None = None
    follows: str | None = field(default=None, repr=False)

    payload = Sparse
    traits = Traits(ragged=True, lossless_at={"threshold": 0.0})
    knob = THRESHOLD
    examples = ({"threshold": 1.0}, {"threshold": 2.0, "follows": "rate"})
    waits = ("1", "S W + G", "")

    def __post_init__(self) -> None:
        if self.threshold is None:
            require_density("HardThreshold", self.density)
        else:
            valid = is_real(self.threshold) and self.threshold >= 0
            require(valid, "HardThreshold.threshold", "a finite number >= 0", self.threshold)
        require(self.follows in (None, "rate"), "HardThreshold.follows", "'rate' or null", self.follows)
        rule = "given with follows=rate: the paper's rule is for a constant one"
        require(self.follows is None or self.threshold is not None, "HardThreshold.threshold", rule, None)

    @property
    def uses_learning_rate(self) -> bool:
        return self.follows is not None

    def check(self, plan: Plan) -> None:
        rule = "positive in every step under compressor.follows=rate"
        require(self.follows is None or plan.lowest_rate > 0, "the schedule", rule, plan.lowest_rate)

    def for_model(self, num_parameters: int) -> Self:
        """The same method; without a threshold, it gets that of the paper's rule for ``num_parameters``."""
        threshold = known_threshold(self.threshold, self.density, num_parameters)
        return replace(self, threshold=threshold, density=None)

    def rule(self, size: int, step: Step, workers: range) -> AtLeast:
        return AtLeast(self._threshold_at(step))

    def encode(self, x: Tensor, step: Step) -> Sparse:
        return take(x, at_least(self._threshold_at(step), x))

    def error_bound(self, x: Tensor, step: Step) -> float:
        return x.numel() * self._threshold_at(step) ** 2

    def norm_bound(self, size: int, step: Step) -> tuple[float, float]:
        return 0.0, math.sqrt(size) * self._threshold_at(step)

    def _threshold_at(self, step: Step) -> float:
        if self.threshold is None:
            raise ValueError("HardThreshold.threshold must be set, by for_model(), got None")
        if self.follows is None:
            return self.threshold
        # Local steps at a rate of 0 move nothing, so nothing is lost
        has_effect = step.local_rate is not None or step.learning_rate > 0
        require(has_effect, "the learning rate", "> 0 under follows=rate", step.learning_rate)
        return self.threshold * step.worker_rate


def known_threshold(threshold: float | None, density: float | None, num_parameters: int) -> float:
    """``threshold`` if it is set; otherwise the paper's rule for D = ``num_parameters``."""
    require(num_parameters >= 1, "num_parameters", "an integer >= 1", num_parameters)
    if threshold is not None:
        return threshold
    assert density is not None, "checked at the beginning"
    return 1 / (2 * math.sqrt(density * num_parameters))
