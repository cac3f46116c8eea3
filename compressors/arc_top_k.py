"""ARC-Top-K: all workers send the rows of a matrix that are largest in a sketch of the mean.

Chen, Ma, Li, He, Dong and Yuan, 2025, https://arxiv.org/abs/2510.26709. A random matrix V with ``rank``
columns, the same on all workers and drawn in each step, maps a worker's matrix G of m columns to its sketch
G V. An all-reduce averages the sketches, and the k rows of largest norm in the mean are sent, in a second
all-reduce without indices. Biased; a contraction in expectation for equal workers. Bytes per row: 4 ``rank``
for the sketch of every row, and 4 m for a row that is sent.

Shapes and settings are those of the authors' code (https://github.com/Aris-ma/ARC-TopK-release). A matrix
keeps its rows. A convolution with kernels of t columns has rows of 2 t^2 entries. A row of a vector is one
entry, and the vector is its own sketch, so it takes more bytes than without compression. Deviation: if 2 t^2
does not divide the number of entries, a row is one kernel.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    METADATA,
    Codec,
    CodecWithDensity,
    Communicator,
    Input,
    Sparse,
    State,
    Step,
    Traits,
    elements_of,
    is_count,
    require,
    squared_norm,
)
from compressors.core.randomness import generator
from compressors.parts.chosen import Chosen
from compressors.parts.searches import largest, magnitude_keys


@dataclass(frozen=True, kw_only=True)
class ARCTopK(CodecWithDensity):
    """Sends k = max(1, floor(density * rows)) rows of every layer, the largest in the sketch of the mean.

    A higher density sends more and keeps a smaller residual; ``schedule`` varies it over the epochs. A higher
    ``rank`` makes the sketch larger and more exact. Raises ``ValueError`` for a density outside (0, 1] and a
    rank below 1.
    """

    rank: int = 4  # the authors' value

    payload = Sparse
    traits = Traits(linear=True, seeded=True, lossless_at={"density": 1.0, "schedule": "constant"})
    examples = ({"density": 0.1}, {"density": 0.3, "rank": 1})

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_count(self.rank), "ARCTopK.rank", "an integer >= 1", self.rank)

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()  # in the worst case all rows sent are 0

    def choose(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], State]:
        sketches = [sketch for given in inputs for sketch in self._sketches(given, step)]
        means = communicator.all_reduce_mean(sketches, kind=METADATA)
        layers = [(size // columns, columns) for given in inputs for size, columns in _layers(given)]
        norms = [mean.view(count, -1).square().sum(1) for mean, (count, _) in zip(means, layers, strict=True)]
        flags = [largest(magnitude_keys(own), elements_of(self.density_at(step), len(own))) for own in norms]
        kept = iter(torch.cat(flags).cpu().split([count for count, _ in layers]))  # the only wait for a GPU
        chosen: list[Codec] = []
        for given in inputs:
            where = []
            for first, (_, columns) in zip(given.segment.edges, _layers(given), strict=False):
                rows = next(kept).numpy().nonzero()[0]
                where.append(first + (rows[:, None] * columns + np.arange(columns)).ravel())
            chosen.append(Chosen(where=np.concatenate(where)))
        return chosen, state

    def _sketches(self, given: Input, step: Step) -> list[Tensor]:
        """The sketch of each layer of each local worker's p, [W, rows rank]."""
        layers, rows = _layers(given), given.segment.rows
        wide = torch.promote_types(rows.dtype, torch.float32)
        matrices = []
        for number, (_, columns) in enumerate(layers):
            stream = generator("sketch", step.seed, step.number, given.name, number)
            drawn = torch.randn(columns, self.rank, generator=stream, dtype=wide) if columns > 1 else None
            matrices.append(None if drawn is None else drawn.to(rows.device, non_blocking=True))
        found: list[list[Tensor]] = [[] for _ in layers]
        for row in range(len(rows)):  # one at a time: a joint product of several workers may have other bits
            parts = given.vector(row).to(wide).split([size for size, _ in layers])
            for x, v, of_layer in zip(parts, matrices, found, strict=True):
                of_layer.append(x if v is None else (x.view(-1, len(v)) @ v).flatten())
        return [torch.stack(of_layer) for of_layer in found]


def _layers(given: Input) -> list[tuple[int, int]]:
    """Per layer the number of its entries, and the number of entries of one of its rows."""
    return [(math.prod(shape), columns_of(shape)) for shape in given.segment.shapes]


def columns_of(shape: tuple[int, ...]) -> int:
    """Entries of a row of a layer of this shape."""
    if len(shape) < 2:
        return 1
    if len(shape) == 2:
        return shape[1]
    two_kernels = 2 * shape[-1] ** 2
    return math.prod(shape[2:]) if math.prod(shape) % two_kernels else two_kernels
