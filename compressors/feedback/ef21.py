"""EF21: every worker sends the compressed difference between its gradient and the server's estimate of it.

Richtarik, Sokolov and Fatkhullin, 2021, https://arxiv.org/abs/2106.05203, algorithm 2. Worker: h += C(g - h);
server: mean of h += mean of C(g - h), which is the step's direction. h is the estimate. Memory: one buffer of
the size of the gradient per worker, and one for the mean. h starts at 0, so the first directions are
compressed gradients (the paper also permits h = C(g) of the first batch).
"""

from dataclasses import dataclass, field
from functools import partial

from compressors.api import Communicator, Input, Reduced, Reducer, Segment, Step, Traits, Wrapper
from compressors.feedback.shifts import (
    Shifts,
    differences,
    reduce_differences,
    require_mean_over_all,
    zero_shifts,
)


@dataclass(frozen=True)
class EF21(Wrapper):
    """Reduces g - h. The mean of all h is the step's direction.

    The compression error is ||g - h||^2 after the step. With a lossless method it is SGD. Raises
    ``ValueError`` for a method whose mean is over senders.
    """

    inner: Reducer
    scale: str | None = field(default=None, kw_only=True, repr=False)  # ignored; presets may set it

    keeps_residual = False
    needs_contraction = True

    def __post_init__(self) -> None:
        require_mean_over_all(self.inner)

    @property
    def is_idle(self) -> bool:
        return self.inner.traits.lossless

    @property
    def traits(self) -> Traits:
        return self.inner.traits._replace(relays=True)

    def init(self, segments: list[Segment]) -> Shifts:
        return zero_shifts(self.inner, segments)

    def carried(self, inputs: list[Input], state: Shifts, step: Step) -> list[Input]:
        own = differences([given.seen() for given in inputs], state)
        return self.inner.carried(own, state.inner, step)

    def reduce(
        self, inputs: list[Input], state: Shifts, step: Step, communicator: Communicator
    ) -> tuple[Reduced, Shifts]:
        segments = [given.formed() for given in inputs]
        return reduce_differences(
            self.inner, segments, state, partial(self._rate, step=step), step, communicator
        )

    def _rate(self, segment: Segment, step: Step) -> float:
        """The share of C(g - h) that is added to h in ``step``."""
        return 1.0
