"""DIANA: unbiased compression of the difference between every worker's gradient and a shift that follows it.

Mishchenko, Gorbunov, Takac and Richtarik, 2019, https://arxiv.org/abs/1901.09269, algorithm 1. Worker: sends
C(g - h), then h += alpha C(g - h); server: the direction is the mean of h + C(g - h), and its mean of h
follows in the same way. The direction is an unbiased estimate of the mean gradient. As h follows the worker's
gradient, the variance falls to that of the gradients, also where workers' gradients differ at the optimum.
With alpha = 0 it is compression without feedback; EF21 is alpha = 1 with a biased C. h begins with 0.
Memory: one buffer of the size of the gradient per worker, and one for the mean. Deviation from the paper: the
optimizer's momentum and weight decay replace its momentum and its proximal step.
"""

import math
from dataclasses import dataclass, field

from compressors.api import (
    Communicator,
    Input,
    Reduced,
    Reducer,
    Segment,
    Step,
    Traits,
    Wrapper,
    is_real,
    require,
)
from compressors.core.compress import Compress
from compressors.feedback.shifts import Beliefs, differences, reduce_differences, zero_shifts


@dataclass(frozen=True)
class DIANA(Wrapper):
    """Reduces g - h. The mean of h + C(g - h) is the step's direction.

    ``alpha`` is the rate of the shifts h. If it is None, every segment has the largest rate of the theory,
    1 / (1 + omega), where omega bounds the variance of C for the segment's size (``Codec.variance_bound``).
    The compression error is ||(g - h) - C(g - h)||^2. Raises ``ValueError`` for an alpha outside (0, 1], for
    a method that is not unbiased, and for alpha None if omega is not known.
    """

    inner: Reducer
    alpha: float | None = field(default=None, kw_only=True)
    scale: str | None = field(default=None, kw_only=True, repr=False)  # of a preset; there is no residual

    keeps_residual = False

    def __post_init__(self) -> None:
        valid = self.alpha is None or (is_real(self.alpha) and 0 < self.alpha <= 1)
        require(valid, "DIANA.alpha", "in (0, 1], or null for 1 / (1 + omega)", self.alpha)
        method = self.innermost
        name = type(method.codec if isinstance(method, Compress) else method).__name__
        unbiased = self.inner.traits.unbiased or self.is_idle
        require(unbiased, "compressor", "unbiased under feedback=diana, such as qsgd or natural", name)
        known = self.alpha is not None or self.is_idle or math.isfinite(self._variance_bound(1))
        require(known, "feedback.alpha", f"set with {name}, whose variance has no known bound", self.alpha)

    @property
    def is_idle(self) -> bool:
        return self.inner.traits.lossless

    @property
    def traits(self) -> Traits:
        return self.inner.traits._replace(relays=True)

    def init(self, segments: list[Segment]) -> Beliefs:
        return zero_shifts(self.inner, segments)

    def carried(self, inputs: list[Input], state: Beliefs, step: Step) -> list[Input]:
        own = differences([given.seen() for given in inputs], state)
        return self.inner.carried(own, state.inner, step)

    def reduce(
        self, inputs: list[Input], state: Beliefs, step: Step, communicator: Communicator
    ) -> tuple[Reduced, Beliefs]:
        segments = [given.formed() for given in inputs]
        return reduce_differences(self.inner, segments, state, self._rate, step, communicator)

    def _rate(self, segment: Segment) -> float:
        """alpha of a segment."""
        if self.alpha is not None:
            return self.alpha
        return 1 / (1 + self._variance_bound(segment.rows.shape[1]))

    def _variance_bound(self, size: int) -> float:
        """omega of the method for ``size`` elements."""
        method = self.innermost
        return method.codec.variance_bound(size) if isinstance(method, Compress) else math.inf
