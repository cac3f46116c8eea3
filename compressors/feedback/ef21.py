"""EF21: every worker sends the compressed difference between its gradient and the server's estimate of it.

Richtarik, Sokolov and Fatkhullin, 2021, https://arxiv.org/abs/2106.05203, algorithm 2. Worker: h += C(g - h);
server: mean of h += mean of C(g - h), which is the step's direction. h is the estimate. Memory: one buffer of
the size of the gradient per worker, and one for the mean. h starts at 0, so the first directions are
compressed gradients (the paper also permits h = C(g) of the first batch).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import (
    Communicator,
    Input,
    Reduced,
    Reducer,
    Segment,
    Shared,
    State,
    Step,
    Traits,
    Wrapper,
    zeros_of,
)


class Beliefs(NamedTuple):
    """The state of EF21."""

    believed: dict[str, Tensor]  # h, [W, d] per segment
    mean: Shared  # of h over all n workers, [d] per segment
    inner: State


@dataclass(frozen=True)
class EF21(Wrapper):
    """Reduces g - h. The mean of all h is the step's direction.

    The compression error is ||g - h||^2 after the step. With a lossless method it is SGD.
    """

    inner: Reducer

    keeps_residual = False

    @property
    def is_idle(self) -> bool:
        return self.inner.traits.lossless

    @property
    def traits(self) -> Traits:
        return self.inner.traits._replace(relays=True)

    def init(self, segments: list[Segment]) -> Beliefs:
        mean = {s.name: torch.zeros_like(s.rows[0], memory_format=torch.contiguous_format) for s in segments}
        return Beliefs(zeros_of(segments), Shared(mean), self.inner.init(segments))

    def carried(self, inputs: list[Input], state: Beliefs, step: Step) -> list[Input]:
        segments = [given.seen() for given in inputs]
        own = [Input(s._replace(rows=s.rows - state.believed[s.name])) for s in segments]
        return self.inner.carried(own, state.inner, step)

    def reduce(
        self, inputs: list[Input], state: Beliefs, step: Step, communicator: Communicator
    ) -> tuple[Reduced, Beliefs]:
        segments = [given.formed() for given in inputs]
        for segment in segments:
            segment.rows.sub_(state.believed[segment.name])
        differences = [segment.rows.clone() for segment in segments]  # the reduction consumes its input
        own = [Input(segment) for segment in segments]
        reduced, inner = self.inner.reduce(own, state.inner, step, communicator)
        mean = {}
        for segment, difference in zip(segments, differences, strict=True):
            name = segment.name
            state.believed[name].add_(difference.sub_(reduced.residual[name]))
            mean[name] = state.mean.state[name].add_(reduced.mean[name]).clone()
        return reduced._replace(mean=mean), Beliefs(state.believed, state.mean, inner)
