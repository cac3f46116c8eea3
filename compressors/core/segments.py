"""Segments, inputs, the step and the state of a method."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.randomness import derive_seed

State = Any  # NamedTuples and dicts of tensors [W, ...], ``Shared``, or (); checkpoints contain the tensors
Shapes = tuple[tuple[int, ...], ...]  # of a segment's layers, in order


class Shared(NamedTuple):
    """A part of a state that is equal on all workers: saved once, and kept for other numbers of workers."""

    state: State


class Segment(NamedTuple):
    """Elements that are compressed together: one layer, or the whole model."""

    name: str
    rows: Tensor  # [W, d], one row per local worker
    shapes: Shapes  # of the L layers in a row, in order
    weights: Sequence[
        Tensor
    ] = ()  # the layers' weights, equal on all workers, as in the model; none in a test

    @property
    def edges(self) -> np.ndarray:
        """Boundaries of the layers in a row, [L + 1] int64: 0, ..., d."""
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
    """A reducer's input for one segment: p = memory + scale * gradient, or the gradient alone.

    The first reader computes the sum in ``memory``; a compiled loop does this in its first pass.
    """

    segment: Segment  # rows are the gradients; a reduction consumes them
    memory: Tensor | None = None  # [W, d]
    scale: float = 1.0

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def size(self) -> int:
        """d, the number of elements of a row."""
        return self.segment.rows.shape[1]

    @property
    def rows(self) -> Tensor:
        """The buffer of p and, after the reduction, of p - C(p), [W, d]."""
        return self.segment.rows if self.memory is None else self.memory

    def formed(self) -> Segment:
        """The segment with rows p, computed in place. Call it once."""
        if self.memory is None:
            return self.segment
        return self.segment._replace(rows=self.memory.add_(self.segment.rows, alpha=self.scale))

    def seen(self) -> Segment:
        """The segment with rows p in a new tensor, for observers; nothing is changed."""
        if self.memory is None:
            return self.segment
        return self.segment._replace(rows=self.memory.add(self.segment.rows, alpha=self.scale))

    def vector(self, row: int) -> Tensor:
        """p of one local worker, [d], in a new tensor; nothing is changed."""
        if self.memory is None:
            return self.segment.rows[row].clone(memory_format=torch.contiguous_format)
        return self.memory[row].add(self.segment.rows[row], alpha=self.scale)

    def entries(self, row: int, where: Tensor) -> Tensor:
        """p of one local worker at the positions ``where`` [k] int64, in a new tensor."""
        gradient = self.segment.rows[row].index_select(0, where)
        if self.memory is None:
            return gradient
        return self.memory[row].index_select(0, where).add(gradient, alpha=self.scale)


class Step(NamedTuple):
    """The step, as a method sees it; equal for every number of processes."""

    seed: int
    number: int  # counted from 0
    learning_rate: float = 1.0
    epoch: float = 0.0  # epochs before the step, fractional
    segment: str = ""  # the segment of this ``Codec.encode`` call
    shapes: Shapes = ()  # of the segment's layers
    worker: int = 0  # id of the worker whose vector is encoded
    weights: Sequence[Tensor] = ()  # of the segment's layers, before the step
    local_rate: float | None = None  # mean rate of the local steps since the last exchange; None without them
    fragments: int = 1  # sets of layers that are exchanged in turn, one in each step

    def layers(self, x: Tensor) -> Sequence[Tensor]:
        """The layers of ``x`` [d], in order; one layer if there are no shapes."""
        return x.split([math.prod(shape) for shape in self.shapes] or [x.numel()])

    @property
    def worker_rate(self) -> float:
        """The rate of the local steps, if there are any; otherwise the learning rate."""
        return self.learning_rate if self.local_rate is None else self.local_rate

    @property
    def exchange(self) -> int:
        """Number of exchanges of the segment before this one, if no step is skipped."""
        return self.number // self.fragments

    @property
    def whole_epochs(self) -> int:
        """Number of whole epochs before the step, with a tolerance for rounding."""
        return int(self.epoch + 1e-9)

    def derive_seed(self, *, shared: bool) -> int:
        """The seed of this step and segment, shared by all workers or separate for this worker."""
        salt = (self.seed, self.number, self.segment)
        return derive_seed("shared", *salt) if shared else derive_seed("own", *salt, self.worker)


def zeros_of(segments: list[Segment]) -> dict[str, Tensor]:
    """Zeros of the size of the gradients, by segment name, [W, d] each."""
    return {s.name: torch.zeros_like(s.rows, memory_format=torch.contiguous_format) for s in segments}


def inputs_of(segments: list[Segment]) -> list[Input]:
    """Inputs that consist of the gradients alone.

    Raises ``ValueError`` for segments of several dtypes: compiled loops get one dtype and all addresses.
    """
    dtypes = {segment.rows.dtype for segment in segments}
    if len(dtypes) > 1:
        raise ValueError(f"segments that are reduced together must have one dtype, got {_names_of(dtypes)}")
    return [Input(segment) for segment in segments]


def _names_of(dtypes: Iterable[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


@lru_cache(maxsize=4096)
def edges_of(shapes: Shapes) -> np.ndarray:
    """Boundaries of layers, [L + 1] int64; read-only."""
    edges = np.zeros(len(shapes) + 1, dtype=np.int64)
    np.cumsum([math.prod(shape) for shape in shapes], out=edges[1:])
    edges.setflags(write=False)
    return edges


@lru_cache(maxsize=4096)
def sizes_of(shapes: Shapes) -> np.ndarray:
    """Elements of each layer, [L] int64; read-only."""
    sizes = np.diff(edges_of(shapes))
    sizes.setflags(write=False)
    return sizes
