"""Error feedback: entries that were not sent are kept and added to the next gradient.

Seide et al., 2014; Stich et al., 2018, https://arxiv.org/abs/1809.07599; Karimireddy et al., 2019,
https://arxiv.org/abs/1901.09847. Low-pass filter: Chen et al., 2020, "ScaleCom",
https://arxiv.org/abs/2104.11125, algorithm 1.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

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
    zeros_of,
)
from compressors.core.payloads import divide_all
from compressors.feedback.scale import require_rates, require_scale, scale_of


class Memory(NamedTuple):
    """The state of error feedback."""

    residual: dict[str, Tensor]  # e, [W, d] per segment
    inner: State


@dataclass(frozen=True)
class ErrorFeedback(Wrapper):
    """Reduces p = e + g and keeps e' = p - C(p) in the memory of e.

    ``scale="gradient"`` keeps the residual in units of the gradient, as Sahu et al., 2021, do for their
    networks. ``scale="step"`` uses p = e + lr g, as in their theory and convex runs. The residual and the
    compression error then have units of the parameters, and a change of the learning rate does not rescale
    them. The mean is divided by lr afterwards, so an SGD optimizer changes the parameters by mean C(p).

    ``beta`` below 1 is a low-pass filter: (1 - beta) e + beta (p - C(p)) is kept. A lower beta gives a
    smoother residual, which follows the gradient more slowly and keeps a part of the entries sent. It needs
    one more copy of e in each step. Raises ``ValueError`` for another scale, for a beta outside (0, 1], and
    in a step whose learning rate is 0 under ``scale="step"``.
    """

    inner: Reducer
    scale: str = field(default="gradient", kw_only=True)
    beta: float = field(default=1.0, kw_only=True)

    keeps_residual = True
    needs_contraction = True

    def __post_init__(self) -> None:
        require_scale("ErrorFeedback", self.scale)
        require(is_real(self.beta) and 0 < self.beta <= 1, "ErrorFeedback.beta", "in (0, 1]", self.beta)

    def check(self, plan: Plan) -> None:
        require_rates(self.scale, plan)
        super().check(plan)

    @property
    def uses_learning_rate(self) -> bool:
        return self.scale == "step" or self.inner.uses_learning_rate

    @property
    def is_idle(self) -> bool:
        return self.inner.traits.lossless

    def init(self, segments: list[Segment]) -> Memory:
        return Memory(zeros_of(segments), self.inner.init(segments))

    def carried(self, inputs: list[Input], state: Memory, step: Step) -> list[Input]:
        own = self._with_residual([given.seen() for given in inputs], state, step)
        return self.inner.carried(own, state.inner, step)

    def reduce(
        self, inputs: list[Input], state: Memory, step: Step, communicator: Communicator
    ) -> tuple[Reduced, Memory]:
        own = self._with_residual([given.formed() for given in inputs], state, step)
        before = {given.name: given.rows.clone() for given in own} if self.beta < 1 else {}
        reduced, inner = self.inner.reduce(own, state.inner, step, communicator)
        if own[0].scale != 1.0:
            divide_all(list(reduced.mean.values()), own[0].scale)
        residual = state.residual | {
            name: left.contiguous()
            for name, left in reduced.residual.items()
            if left.data_ptr() != state.residual[name].data_ptr()  # the method did not use e's memory
        }
        for name, old in before.items():
            residual[name] = old.mul_(1 - self.beta).add_(residual[name], alpha=self.beta)
        return reduced, Memory(residual, inner)

    def _with_residual(self, segments: list[Segment], state: Memory, step: Step) -> list[Input]:
        factor = scale_of(self.scale, step)
        return [Input(segment, state.residual[segment.name], factor) for segment in segments]


@dataclass(frozen=True)
class DecayedFeedback(ErrorFeedback):
    """Reduces p = decay e + g and keeps e' = p - C(p).

    Of Sarfi et al., 2025, "SparseLoCo", https://arxiv.org/abs/2508.15706, and Peng et al., 2024, "DeMo",
    https://arxiv.org/abs/2411.19870. Without compression nothing remains to decay; with it, p is a momentum
    of which C(p) is removed. The low-pass filter of ``beta`` instead keeps a share of the entries sent.
    Raises ``ValueError`` for a decay outside (0, 1].
    """

    decay: float = field(default=0.95, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = is_real(self.decay) and 0 < self.decay <= 1
        require(valid, "DecayedFeedback.decay", "in (0, 1]", self.decay)

    def carried(self, inputs: list[Input], state: Memory, step: Step) -> list[Input]:
        decayed = {given.name: state.residual[given.name] * self.decay for given in inputs}
        return super().carried(inputs, state._replace(residual=state.residual | decayed), step)

    def reduce(
        self, inputs: list[Input], state: Memory, step: Step, communicator: Communicator
    ) -> tuple[Reduced, Memory]:
        for given in inputs:
            state.residual[given.name].mul_(self.decay)
        return super().reduce(inputs, state, step, communicator)
