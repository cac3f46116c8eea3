"""Momentum correction: every worker accumulates its own momentum, and resets it where an element was sent.

Lin et al., 2018, "Deep gradient compression", https://arxiv.org/abs/1712.01887, algorithm 4. u = m u + g is
the velocity, v = v + u is compressed, and "momentum factor masking" zeroes u where an element was sent. With
a lossless method it is momentum SGD. The optimizer adds the weight decay after compression, with the same
momentum, as in the authors' code (``optimizer.decay_momentum``); torch's SGD in your own script adds it
without momentum. The Nesterov form of their code, u = m (u + g) and v = v + u + g, is not available. Memory:
two buffers of the size of the gradients per worker, and one of the size of the weights with weight decay.
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
    State,
    Step,
    Wrapper,
    is_real,
    require,
    require_flag,
    zeros_of,
)
from compressors.core.payloads import divide
from compressors.feedback.scale import require_rates, require_scale, scale_of


class Velocities(NamedTuple):
    """The state of momentum correction."""

    velocity: dict[str, Tensor]  # u, [W, d] per segment
    residual: dict[str, Tensor]  # v, [W, d] per segment
    inner: State


@dataclass(frozen=True)
class MomentumCorrection(Wrapper):
    """Reduces v + u instead of the gradient, and keeps the entries that were not sent in v.

    ``momentum`` is m and replaces the optimizer's momentum: the optimizer must be SGD with momentum 0.
    ``masking`` sets the velocity of sent elements to 0. ``scale="step"`` keeps v in units of the parameters,
    v = v + lr u, as in ``ErrorFeedback``. Raises ``ValueError`` for a momentum outside [0, 1), for masking
    with a method that rounds, and for another scale.
    """

    inner: Reducer
    momentum: float = field(default=0.9, kw_only=True)
    masking: bool = field(default=True, kw_only=True)
    scale: str = field(default="gradient", kw_only=True)

    keeps_residual = True
    needs_contraction = True

    def __post_init__(self) -> None:
        valid = is_real(self.momentum) and 0 <= self.momentum < 1
        require(valid, "MomentumCorrection.momentum", "in [0, 1)", self.momentum)
        require_flag("MomentumCorrection.masking", self.masking)
        require_scale("MomentumCorrection", self.scale)
        exact = not self.masking or self.inner.traits.exact
        require(exact, "MomentumCorrection.masking", "false with a method that rounds", self.masking)

    def check(self, plan: Plan) -> None:
        rule = "SGD under feedback=momentum_correction, whose momentum is that of the gradients"
        require(plan.optimizer == "SGD", "optimizer", rule, plan.optimizer)
        rule = "0 under feedback=momentum_correction, which has its own"
        require(plan.momentum == 0, "optimizer.momentum", rule, plan.momentum)
        require_rates(self.scale, plan)
        super().check(plan)

    def init(self, segments: list[Segment]) -> Velocities:
        return Velocities(zeros_of(segments), zeros_of(segments), self.inner.init(segments))

    def carried(self, inputs: list[Input], state: Velocities, step: Step) -> list[Input]:
        segments, factor = [given.seen() for given in inputs], scale_of(self.scale, step)
        velocities = [s._replace(rows=state.velocity[s.name] * self.momentum + s.rows) for s in segments]
        own = [Input(velocity, state.residual[velocity.name], factor) for velocity in velocities]
        return self.inner.carried(own, state.inner, step)

    def reduce(
        self, inputs: list[Input], state: Velocities, step: Step, communicator: Communicator
    ) -> tuple[Reduced, Velocities]:
        own, factor = [], scale_of(self.scale, step)
        for segment in (given.formed() for given in inputs):
            velocity = state.velocity[segment.name].mul_(self.momentum).add_(segment.rows)
            segment.rows.copy_(velocity)  # a reduction consumes its input
            own.append(Input(segment, state.residual[segment.name], factor))
        reduced, inner = self.inner.reduce(own, state.inner, step, communicator)
        if factor != 1.0:
            for mean in reduced.mean.values():
                divide(mean, factor)
        residual = state.residual | {name: left.contiguous() for name, left in reduced.residual.items()}
        if self.masking and not self.inner.traits.lossless:  # a lossless method has no waiting entries
            for given in own:
                self._mask_velocity(state.velocity[given.name], reduced, given)
        return reduced, Velocities(state.velocity, residual, inner)

    def _mask_velocity(self, velocity: Tensor, reduced: Reduced, given: Input) -> None:
        """Set ``velocity`` [W, d] to 0 where a worker's element was sent."""
        compressed = reduced.compressed[given.name]
        positions = compressed.positions(given.size).to(velocity.device)
        rows = torch.arange(len(velocity)).repeat_interleave(torch.from_numpy(compressed.counts))
        velocity[rows.to(velocity.device, non_blocking=True), positions] = 0
