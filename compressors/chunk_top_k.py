"""Chunked Top-k: the k largest magnitudes of every chunk of a matrix, with short indices.

Sarfi et al., 2025, "SparseLoCo", https://arxiv.org/abs/2508.15706; the chunks are those of DeMo, Peng et al.,
2024, https://arxiv.org/abs/2411.19870. A matrix is cut into chunks of at most 64 x 64 entries, a vector into
chunks of at most 64. The side of a chunk is the largest divisor of the dimension up to ``chunk``, as in the
authors' code, so a dimension that is a large prime number has chunks of one entry, which are sent whole.
Layers with more dimensions are matrices of their first dimension and the rest. An index within a chunk takes
12 bits. SparseLoCo's paper divides the sum of a coordinate by the number of workers (``aggregation=mean``);
its authors' code, tplr-ai/templar, like DeMo's, by the number of those that sent it, which is the default
here and gives larger steps. Biased; a contraction. Exactly k entries of a chunk are sent, or all of a smaller
one: ties go to the lowest index, and NaN counts as larger than any number.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from compressors.api import (
    INDICES,
    VALUES,
    Codec,
    Field,
    Knob,
    Step,
    Traits,
    is_count,
    require,
    require_choice,
    squared_norm,
)
from compressors.core.fields import PayloadType
from compressors.core.payloads import take_values
from compressors.encoding.packing import join_bits, split_bits, widths_of

LARGEST_CHUNK = 128  # side; an index then has 14 bits
AGGREGATIONS = ("mean", "senders")


class Grid(NamedTuple):
    """The chunks of a layer of rows x columns entries."""

    rows: int
    columns: int
    height: int  # of a chunk
    width: int

    @property
    def chunk_size(self) -> int:
        return self.height * self.width

    def chunks(self, x: Tensor) -> Tensor:
        """``x`` [rows columns] by chunks, [C, chunk_size]."""
        return self.tiles(x).reshape(-1, self.chunk_size)

    def tiles(self, x: Tensor) -> Tensor:
        """A view of ``x`` [rows columns] by chunks, [rows / height, columns / width, height, width]."""
        tiles = x.view(self.rows // self.height, self.height, self.columns // self.width, self.width)
        return tiles.transpose(1, 2)

    def positions(self, within: Tensor) -> Tensor:
        """Positions in the layer of the positions ``within`` [C, k] the chunks."""
        per_row = self.columns // self.width
        chunk = torch.arange(len(within), device=within.device).unsqueeze(1)
        row = (chunk // per_row) * self.height + within // self.width
        return row * self.columns + (chunk % per_row) * self.width + within % self.width


@dataclass(frozen=True, kw_only=True)
class ChunkTopK(Codec):
    """Keeps the ``k`` largest magnitudes of every chunk of ``chunk`` x ``chunk`` entries.

    ``aggregation="senders"`` divides the sum of a coordinate by the number of workers that sent it, and not
    by that of all workers. Raises ``ValueError`` for k < 1, for a chunk outside [1, 128] and for another
    aggregation.
    """

    k: int = 64
    chunk: int = 64
    aggregation: str = "senders"

    knob = Knob("k")
    examples = ({"k": 3, "chunk": 8}, {"k": 2, "chunk": 4, "aggregation": "mean"})
    usual_feedback = "decayed"

    def __post_init__(self) -> None:
        require(is_count(self.k), "ChunkTopK.k", "an integer >= 1", self.k)
        valid = is_count(self.chunk) and self.chunk <= LARGEST_CHUNK
        require(valid, "ChunkTopK.chunk", f"an integer from 1 to {LARGEST_CHUNK}", self.chunk)
        require_choice("ChunkTopK.aggregation", AGGREGATIONS, self.aggregation)

    @property
    def payload(self) -> PayloadType:
        return _payload(self.index_bits)

    @property
    def traits(self) -> Traits:
        return Traits(lossless_at={"k": self.chunk**2}, of_senders=self.aggregation == "senders")

    @property
    def index_bits(self) -> int:
        """Bits of an index within a chunk, at least a byte."""
        return max(8, (self.chunk**2 - 1).bit_length())

    def encode(self, x: Tensor, step: Step) -> Any:
        within = [self._largest(grid, layer) for grid, layer in self._layers(x, step)]
        values = take_values(x, self._positions(within, x.numel(), step))
        codes = torch.cat([own.flatten() for own in within]).to(torch.int16)
        return self.payload(values, *split_bits(codes, self.index_bits))

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        out.index_add_(0, self.positions(payload, out.numel(), step), payload.values.to(out.dtype))

    def num_sent(self, payload: Any, size: int, step: Step) -> int:
        return len(payload.values)

    def positions(self, payload: Any, size: int, step: Step) -> Tensor:
        codes = join_bits(payload[1:], self.index_bits, len(payload.values)).long()
        grids = self._grids(size, step)
        counts = [grid.rows * grid.columns // grid.chunk_size * self._number(grid) for grid in grids]
        parts = zip(codes.split(counts), grids, strict=True)
        return self._positions([own.view(-1, self._number(grid)) for own, grid in parts], size, step)

    def error_bound(self, x: Tensor, step: Step) -> float:
        return self.norm_bound(x.numel(), step)[0] ** 2 * squared_norm(x).item()

    def norm_bound(self, size: int, step: Step) -> tuple[float, float]:
        shares = [1 - self._number(grid) / grid.chunk_size for grid in self._grids(size, step)]
        return math.sqrt(max(shares, default=0.0)), 0.0

    def _largest(self, grid: Grid, layer: Tensor) -> Tensor:
        """Ascending positions within each chunk, [C, k]."""
        order = grid.chunks(layer).abs().sort(dim=1, descending=True, stable=True).indices
        return order[:, : self._number(grid)].sort(dim=1).values

    def _positions(self, within: Sequence[Tensor], size: int, step: Step) -> Tensor:
        """Positions in the segment of the positions ``within`` [C, k] each layer's chunks, flat."""
        found, begin = [], 0
        for grid, own in zip(self._grids(size, step), within, strict=True):
            found.append(grid.positions(own).flatten() + begin)
            begin += grid.rows * grid.columns
        return torch.cat(found)

    def _number(self, grid: Grid) -> int:
        return min(self.k, grid.chunk_size)

    def _layers(self, x: Tensor, step: Step) -> Iterator[tuple[Grid, Tensor]]:
        return zip(self._grids(x.numel(), step), step.layers(x), strict=True)

    def _grids(self, size: int, step: Step) -> list[Grid]:
        return [grid_of(shape, self.chunk) for shape in step.shapes or ((size,),)]


@lru_cache(maxsize=4096)
def grid_of(shape: tuple[int, ...], chunk: int) -> Grid:
    """The chunks of a layer, of at most ``chunk`` x ``chunk`` entries."""
    rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))
    return Grid(rows, columns, _divisor(rows, chunk), _divisor(columns, chunk))


def _divisor(size: int, most: int) -> int:
    """The largest divisor of ``size`` up to ``most``."""
    return next(side for side in range(min(size, most), 0, -1) if size % side == 0)


@lru_cache(maxsize=16)
def _payload(bits: int) -> PayloadType:
    """Values, and indices in packed parts of ``widths_of`` bits."""
    hints = [("values", Annotated[Tensor, Field(VALUES, 1)])]  # [k]
    hints += [
        (f"indices_{n}_{part}", Annotated[Tensor, Field(INDICES, 8 // part)])
        for n, part in enumerate(widths_of(bits))
    ]
    made: Any = NamedTuple("InChunks", hints)  # type: ignore[misc] # at run time
    return made
