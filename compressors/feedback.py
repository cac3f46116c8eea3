"""Error feedback: what was not sent is remembered and added to the next gradient.

Seide et al., 2014; Stich et al., 2018, https://arxiv.org/abs/1809.07599; Karimireddy et al., 2019,
https://arxiv.org/abs/1901.09847.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compressors.api import Context, Reduced, Reducer, Segment
from compressors.checks import require
from compressors.payloads import divide


class Memory(NamedTuple):
    """The state of error feedback."""

    residual: dict[str, Tensor]  # e, [W, d] per segment
    inner: Any


@dataclass(frozen=True)
class ErrorFeedback:
    """p = e + g is reduced, e' = p - C(p) is kept, in place of e.

    ``scale="gradient"`` keeps the residual in gradient units, as the paper's networks do.
    ``scale="step"`` works on p = e + lr g, as its theory and convex runs do: the residual, and
    with it the compression error, is in units of the parameters, and a learning rate that changes
    does not rescale what was saved up. The mean is divided by lr afterwards, so that an SGD
    optimizer moves by exactly mean C(p). Raises ``ValueError`` for another scale, and in a step
    whose learning rate is 0 under ``scale="step"``.
    """

    inner: Reducer
    scale: str = field(default="gradient", kw_only=True)

    def __post_init__(self) -> None:
        valid = self.scale in ("gradient", "step")
        require(valid, "ErrorFeedback.scale", "'gradient' or 'step'", self.scale)

    @property
    def checks_input(self) -> bool:
        return getattr(self.inner, "checks_input", False)

    def init(self, segments: list[Segment]) -> Memory:
        residual = {s.name: torch.zeros_like(s.rows, memory_format=torch.contiguous_format) for s in segments}
        return Memory(residual, self.inner.init(segments))

    def carried(self, segments: list[Segment], state: Memory, context: Context) -> list[Segment]:
        """p of each segment, in the residual's memory and not formed yet."""
        factor = context.learning_rate if self.scale == "step" else 1.0
        require(factor > 0, "the learning rate", "> 0 under feedback.scale=step", factor)
        return [
            Segment(s.name, state.residual[s.name], s.edges, gradient=s.rows, factor=factor, own=s.rows)
            for s in segments
        ]

    def reduce(
        self, segments: list[Segment], state: Memory, context: Context, communicator: Any
    ) -> tuple[Reduced, Memory]:
        carried = self.carried(segments, state, context)
        factor = carried[0].factor
        if not getattr(self.inner, "adds_gradient", False):
            carried = [segment.added() for segment in carried]
        reduced, inner = self.inner.reduce(carried, state.inner, context, communicator)
        if factor != 1.0:
            for mean in reduced.mean.values():
                divide(mean, factor)
        residual = state.residual | {
            name: left.contiguous()
            for name, left in reduced.remainder.items()
            if left.data_ptr() != state.residual[name].data_ptr()  # of a method that leaves nothing
        }
        return reduced, Memory(residual, inner)


def no_feedback(inner: Reducer, *, scale: str | None = None) -> Reducer:
    """What is not sent is lost. A preset's ``scale`` is of no interest then."""
    return inner
