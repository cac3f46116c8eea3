"""What a method is given: segments, the step, and the state that it keeps."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.randomness import derive_seed

# NamedTuples and dicts of tensors [W, ...], ``Shared``, or (): a checkpoint is these tensors, row by row.
State = Any
Shapes = tuple[tuple[int, ...], ...]  # of the layers that lie one after the other in a segment


class Shared(NamedTuple):
    """A part of a state that is no worker's own: equal in all processes, saved once and not dealt out."""

    state: State


class Segment(NamedTuple):
    """The elements that are compressed together: one layer, or the whole model."""

    name: str
    rows: Tensor  # [W, d], one row per local worker
    shapes: Shapes  # of the L layers that lie in a row, one after the other

    @property
    def edges(self) -> np.ndarray:
        """Where the layers begin and end in a row, [L + 1] int64: 0, ..., d."""
        return edges_of(self.shapes)

    @property
    def num_elements(self) -> np.ndarray:
        """Elements per worker and layer, [W, L] int64."""
        return sizes_of(self.shapes)[None].repeat(self.rows.shape[0], 0)

    def layers(self) -> list[Tensor]:
        """The layers of all rows, views [W, *shape]."""
        parts = self.rows.split([math.prod(shape) for shape in self.shapes], 1)
        return [part.unflatten(1, shape or (1,)) for part, shape in zip(parts, self.shapes, strict=True)]


class Input(NamedTuple):
    """What a reducer is given of one segment: p = memory + scale * gradient, or the gradient by itself.

    The sum is formed in ``memory`` by who reads it first: a compiled loop does so on its way.
    """

    segment: Segment  # whose rows are the gradients; a reduction consumes them
    memory: Tensor | None = None  # [W, d]
    scale: float = 1.0

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def size(self) -> int:
        """d."""
        return self.segment.rows.shape[1]

    @property
    def rows(self) -> Tensor:
        """Where p comes to lie, and p - C(p) after it, [W, d]."""
        return self.segment.rows if self.memory is None else self.memory

    def formed(self) -> Segment:
        """The segment whose rows are p. To be called once."""
        if self.memory is None:
            return self.segment
        return self.segment._replace(rows=self.memory.add_(self.segment.rows, alpha=self.scale))

    def seen(self) -> Segment:
        """The same for who looks on: the sum is a tensor of its own, and nothing else changes."""
        if self.memory is None:
            return self.segment
        return self.segment._replace(rows=self.memory.add(self.segment.rows, alpha=self.scale))


class Step(NamedTuple):
    """What a method may know of the step beside the gradients; equal for every layout."""

    seed: int
    number: int  # counted from 0
    learning_rate: float = 1.0
    epoch: float = 0.0  # epochs done before the step, fractional
    segment: str = ""  # which ``Codec.encode`` is asked for
    shapes: Shapes = ()  # of the layers that lie in it
    worker: int = 0  # whose vector it is

    def layers(self, x: Tensor) -> Sequence[Tensor]:
        """The layers that lie in ``x`` [d], one after the other; all of it where none are named."""
        return x.split([math.prod(shape) for shape in self.shapes] or [x.numel()])

    @property
    def whole_epochs(self) -> int:
        """Epochs that were over before the step; a sum of steps that falls short by rounding counts."""
        return int(self.epoch + 1e-9)

    def derive_seed(self, *, shared: bool) -> int:
        """The seed of this step and segment, the same on all workers or this worker's own."""
        salt = (self.seed, self.number, self.segment)
        return derive_seed("shared", *salt) if shared else derive_seed("own", *salt, self.worker)


def zeros_of(segments: list[Segment]) -> dict[str, Tensor]:
    """A memory of the size of the gradients, by segment name, [W, d] each."""
    return {s.name: torch.zeros_like(s.rows, memory_format=torch.contiguous_format) for s in segments}


def inputs_of(segments: list[Segment]) -> list[Input]:
    """Gradients by themselves."""
    return [Input(segment) for segment in segments]


@lru_cache(maxsize=4096)
def edges_of(shapes: Shapes) -> np.ndarray:
    """Where layers begin and end, [L + 1] int64; not to be written to."""
    edges = np.zeros(len(shapes) + 1, dtype=np.int64)
    np.cumsum([math.prod(shape) for shape in shapes], out=edges[1:])
    edges.setflags(write=False)
    return edges


@lru_cache(maxsize=4096)
def sizes_of(shapes: Shapes) -> np.ndarray:
    """Elements of each layer, [L] int64; not to be written to."""
    sizes = np.diff(edges_of(shapes))
    sizes.setflags(write=False)
    return sizes
