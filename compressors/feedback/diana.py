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

from compressors.api import Segment, Step, is_real, require
from compressors.core.compress import Compress
from compressors.feedback.ef21 import EF21


@dataclass(frozen=True)
class DIANA(EF21):
    """Reduces g - h; the mean of h + C(g - h) is the step's direction.

    ``alpha`` is the rate of the shifts: h += alpha C(g - h). None is the largest rate that the theory allows,
    1 / (1 + omega), where omega bounds the variance of C for a segment's size and step
    (``Codec.variance_bound``): it follows a scheduled density. The compression error is
    ||(g - h) - C(g - h)||^2. Raises ``ValueError`` for an alpha outside (0, 1], for a method that is not
    unbiased, and for alpha None if omega is not known.
    """

    alpha: float | None = field(default=None, kw_only=True)

    needs_contraction = False

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = self.alpha is None or (is_real(self.alpha) and 0 < self.alpha <= 1)
        require(valid, "DIANA.alpha", "in (0, 1], or null for 1 / (1 + omega)", self.alpha)
        method = self.innermost
        name = type(method.codec if isinstance(method, Compress) else method).__name__
        unbiased = self.inner.traits.unbiased or self.is_idle
        require(unbiased, "compressor", "unbiased under feedback=diana, such as qsgd or natural", name)
        known = self.alpha is not None or self.is_idle or math.isfinite(self._variance_bound(1, Step(0, 0)))
        require(known, "feedback.alpha", f"set with {name}, whose variance has no known bound", self.alpha)

    def _rate(self, segment: Segment, step: Step) -> float:
        """alpha of the segment in ``step``."""
        if self.alpha is not None:
            return self.alpha
        return 1 / (1 + self._variance_bound(segment.rows.shape[1], step))

    def _variance_bound(self, size: int, step: Step) -> float:
        """omega of the method for ``size`` elements."""
        method = self.innermost
        return method.codec.variance_bound(size, step) if isinstance(method, Compress) else math.inf
