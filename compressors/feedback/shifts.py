"""Compression of the difference between a worker's vector and its shift, an estimate of the vector."""

from collections.abc import Callable
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
    require,
    zeros_of,
)


class Shifts(NamedTuple):
    """The shifts h: an estimate of every worker's vector, which the server knows too."""

    believed: dict[str, Tensor]  # h, [W, d] per segment; the name is part of checkpoints
    mean: Shared  # of h over all n workers, [d] per segment
    inner: State


def require_mean_over_all(inner: Reducer) -> None:
    """Raise ``ValueError`` for a mean over senders: the server's sum of them is not the mean of h."""
    rule = "mean under feedback by shifts, such as ef21: the server adds the means to its mean of all h"
    require(not inner.traits.of_senders, "aggregation", rule, "senders")


def zero_shifts(inner: Reducer, segments: list[Segment]) -> Shifts:
    """The state before the first step."""
    mean = {s.name: torch.zeros_like(s.rows[0], memory_format=torch.contiguous_format) for s in segments}
    return Shifts(zeros_of(segments), Shared(mean), inner.init(segments))


def differences(segments: list[Segment], state: Shifts) -> list[Input]:
    """x - h in new tensors, for observers."""
    return [Input(s._replace(rows=s.rows - state.believed[s.name])) for s in segments]


def reduce_differences(
    inner: Reducer,
    segments: list[Segment],
    state: Shifts,
    rate: Callable[[Segment], float],
    step: Step,
    communicator: Communicator,
) -> tuple[Reduced, Shifts]:
    """Reduce x - h for rows x (consumed); the result is the mean of h + C(x - h).

    Then add rate C(x - h) to h, on every worker and in the mean of h.
    """
    for segment in segments:
        segment.rows.sub_(state.believed[segment.name])
    sent = [segment.rows.clone() for segment in segments]  # the reduction consumes its input
    reduced, inner_state = inner.reduce([Input(s) for s in segments], state.inner, step, communicator)
    mean = {}
    for segment, difference in zip(segments, sent, strict=True):
        name, alpha, shift = segment.name, rate(segment), state.mean.state[segment.name]
        state.believed[name].add_(difference.sub_(reduced.residual[name]), alpha=alpha)
        mean[name] = shift + reduced.mean[name]
        shift.add_(reduced.mean[name], alpha=alpha)
    return reduced._replace(mean=mean), Shifts(state.believed, state.mean, inner_state)
