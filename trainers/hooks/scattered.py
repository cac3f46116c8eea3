"""Reducers whose means are scattered: each worker receives the mean of the parts that it owns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    VALUES,
    Codec,
    Communicator,
    Field,
    Input,
    Reduced,
    Reducer,
    Segment,
    State,
    Step,
    Traits,
    Wrapper,
)
from compressors.core.codec import Compressed
from compressors.core.compress import Compress
from compressors.core.transports import AllGather, AllReduce
from trainers.checkpoint.tree import walk
from trainers.hooks.owners import Edges, ToOwners, sends_entries


def scattered(reducer: Reducer, edges: Mapping[str, Edges], owners: range) -> Reducer:
    """``reducer`` with a reduce-scatter, for segments with ``edges`` by name; ``owners`` are n workers.

    A codec that sends one value per entry is applied to whole segments, and its entries go to their owners;
    positions are not sent if all workers select the same. Any other codec is applied to every part, as to a
    segment of its own. A reducer with collectives of its own keeps them. Raises ``ValueError`` for feedback
    that keeps means, and for encoded messages.
    """
    if isinstance(reducer, Wrapper):
        inner = scattered(reducer.inner, edges, owners)
        if inner is reducer.inner:
            return reducer
        if _num_shared(reducer) > _num_shared(reducer.inner):
            raise ValueError(
                "feedback must not keep means of all workers, of which a process of FSDP2 receives a part, "
                f"got {type(reducer).__name__}"
            )
        return replace(reducer, inner=inner)  # type: ignore[type-var]  # wrappers are dataclasses
    if reducer.traits.lossless:
        reducer = Compress(_Unchanged(), AllGather())
    if not isinstance(reducer, Compress):
        return reducer
    if not isinstance(reducer.transport, (AllGather, AllReduce)):
        raise ValueError(f"wire must be plain under FSDP2, got {reducer.transport!r}")
    if sends_entries(reducer.codec):
        return replace(reducer, transport=ToOwners(edges, owners))
    of_parts = {
        f"{name}/{owner}": (0,) * (owner + 1) + (stop - start,) * (len(owners) - owner)
        for name, own in edges.items()
        for owner, (start, stop) in enumerate(pairwise(own))
    }
    return InParts(replace(reducer, transport=ToOwners(of_parts, owners)), edges)


def _num_shared(reducer: Reducer) -> int:
    """Number of tensors in its state that are equal on all workers."""
    state = reducer.init([Segment("probe", torch.zeros(1, 4), ((2, 2),))])
    return len(list(walk(state, "", shared=True)))


class _All(NamedTuple):
    values: Annotated[Tensor, Field(VALUES, 1)]  # [d]

    def add_to(self, out: Tensor) -> None:
        out += self.values


@dataclass(frozen=True)
class _Unchanged(Codec):
    """C(x) = x."""

    payload = _All
    traits = Traits(linear=True, dense=True, drawn=True, lossless_at={})

    def encode(self, x: Tensor, step: Step) -> _All:
        values = x.clone()
        x.zero_()
        return _All(values)


@dataclass(frozen=True)
class InParts(Wrapper):
    """Applies ``inner`` to the owners' parts of every segment, whose names end with the owner's number."""

    inner: Compress
    edges: Mapping[str, Edges] = field(repr=False)

    def layers(self) -> Iterator[Reducer]:
        return self.inner.layers()  # without itself: it changes no residual, and saved states name wrappers

    def init(self, segments: list[Segment]) -> State:
        return self.inner.init([part for segment in segments for part in self._parts(segment)])

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        parts: list[Input] = []
        for given in inputs:
            memory = given.segment._replace(rows=given.rows)
            for own, left in zip(self._parts(given.segment), self._parts(memory), strict=True):
                parts.append(given._replace(segment=own, memory=None if given.memory is None else left.rows))
        reduced, state = self.inner.reduce(parts, state, step, communicator)
        mean, residual, compressed = {}, {}, {}
        for given in inputs:
            names = [part.name for part in self._parts(given.segment)]
            mean[given.name] = torch.cat([reduced.mean[name] for name in names])
            residual[given.name] = given.rows  # of which the parts are views
            found = [reduced.compressed[name] for name in names]
            compressed[given.name] = Compressed(
                np.sum([own.sent for own in found], axis=0),
                torch.stack([own.error for own in found]).sum(0),
                torch.stack([own.input_norm for own in found]).sum(0),
            )
        return Reduced(mean, residual, compressed), state

    def _parts(self, segment: Segment) -> Iterator[Segment]:
        """The parts with elements, views of the segment: rows of a matrix, entries of a vector."""
        ((rows, *others),) = segment.shapes
        row = segment.rows.shape[1] // rows
        for owner, (start, stop) in enumerate(pairwise(self.edges[segment.name])):
            if start < stop:
                shape = ((stop - start) // row, *others)
                yield Segment(f"{segment.name}/{owner}", segment.rows[:, start:stop], (shape,))
