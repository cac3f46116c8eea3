"""EF21-SGDM: EF21 on every worker's momentum instead of its gradient.

Fatkhullin, Tyurin and Richtarik, 2023, https://arxiv.org/abs/2305.15155, algorithm 1. Worker: v = m v + (1 -
m) g, h += C(v - h); server: mean of h += mean of C(v - h), which is the step's direction. The paper writes
eta for 1 - m; 0.1 is usual. The average over steps reduces the gradients' noise, which EF21 keeps. Memory:
two buffers of the size of the gradient per worker, and one for the mean. With a lossless method it is SGD
with momentum m and dampening m. Deviation from the paper: v begins with the first gradient, and h with 0, so
the first message is compressed too; in the paper both begin with the mean gradient of a larger batch, which
is sent uncompressed.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import (
    Communicator,
    Input,
    Plan,
    Reduced,
    Reducer,
    Segment,
    Shared,
    Step,
    Traits,
    Wrapper,
    is_real,
    require,
    zeros_of,
)
from compressors.feedback.shifts import (
    Shifts,
    differences,
    reduce_differences,
    require_mean_over_all,
    zero_shifts,
)


class Averages(NamedTuple):
    """The state of EF21-SGDM."""

    average: dict[str, Tensor]  # v, [W, d] per segment
    begun: Shared  # whether v has begun: 0 or 1, [1] per segment, on the CPU
    shifts: Shifts


@dataclass(frozen=True)
class EF21SGDM(Wrapper):
    """Reduces v - h. The mean of all h is the step's direction.

    ``momentum`` is m and replaces the optimizer's momentum: the optimizer must be SGD with momentum 0. A
    larger one averages over more steps, about 1 / (1 - m). The compression error is ||v - h||^2 after the
    step. Raises ``ValueError`` for a momentum outside [0, 1) and a method whose mean is over senders.
    """

    inner: Reducer
    momentum: float = field(default=0.9, kw_only=True)
    scale: str | None = field(default=None, kw_only=True, repr=False)  # ignored; presets may set it

    keeps_residual = False
    needs_contraction = True

    def __post_init__(self) -> None:
        valid = is_real(self.momentum) and 0 <= self.momentum < 1
        require(valid, "EF21SGDM.momentum", "in [0, 1)", self.momentum)
        require_mean_over_all(self.inner)

    @property
    def traits(self) -> Traits:
        return self.inner.traits._replace(relays=True)

    def check(self, plan: Plan) -> None:
        rule = "SGD under feedback=ef21_sgdm, whose momentum is that of the gradients"
        require(plan.optimizer == "SGD", "optimizer", rule, plan.optimizer)
        rule = "0 under feedback=ef21_sgdm, which has its own"
        require(plan.momentum == 0, "optimizer.momentum", rule, plan.momentum)
        super().check(plan)

    def init(self, segments: list[Segment]) -> Averages:
        begun = {segment.name: torch.zeros(1) for segment in segments}
        return Averages(zeros_of(segments), Shared(begun), zero_shifts(self.inner, segments))

    def carried(self, inputs: list[Input], state: Averages, step: Step) -> list[Input]:
        segments = [given.seen() for given in inputs]
        averages = [
            s._replace(rows=state.average[s.name].lerp(s.rows, self._share(s.name, state))) for s in segments
        ]
        return self.inner.carried(differences(averages, state.shifts), state.shifts.inner, step)

    def reduce(
        self, inputs: list[Input], state: Averages, step: Step, communicator: Communicator
    ) -> tuple[Reduced, Averages]:
        segments = [given.formed() for given in inputs]
        for segment in segments:
            share = self._share(segment.name, state)
            segment.rows.copy_(state.average[segment.name].lerp_(segment.rows, share))
            state.begun.state[segment.name].fill_(1)
        reduced, shifts = reduce_differences(
            self.inner, segments, state.shifts, lambda segment: 1.0, step, communicator
        )
        return reduced, state._replace(shifts=shifts)

    def _share(self, name: str, state: Averages) -> float:
        """The part of the gradient in v: 1 - m, and 1 in the first step that is not skipped."""
        return 1 - self.momentum if state.begun.state[name].item() else 1.0
