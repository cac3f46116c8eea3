"""DeMo: the largest coefficients of every chunk's discrete cosine transform.

Peng et al., 2024, "Decoupled Momentum Optimization", https://arxiv.org/abs/2411.19870. Each chunk of p is
replaced by its orthonormal DCT-II, in both dimensions of a matrix; chunked Top-k selects coefficients, and
their mean is transformed back. With decayed feedback p is the paper's momentum, p = decay e + lr g, from
which what was sent is removed; ``optimizer=sign_sgd`` moves by the sign of the mean. Biased; ||p - C(p)|| <=
||p||. A coefficient takes 4 bytes for its fp32 value and 12 bits for its index in a chunk of 64 x 64. The
authors' code sends 64 bits for the index, 12 bytes in all.

Deviations from the authors' code: layers with more than two dimensions, which it refuses, are matrices of
their first dimension and the rest. The residual of the coefficients is transformed back, which equals its p -
C(p) up to rounding.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from compressors.api import (
    Communicator,
    Input,
    Knob,
    Reduced,
    Reducer,
    Segment,
    State,
    Step,
    Traits,
    inputs_of,
)
from compressors.chunk_top_k import ChunkTopK, grid_of
from compressors.core.compress import Compress
from compressors.core.segments import Shapes
from compressors.core.transports import AllGather, SenderMean
from compressors.parts.rounds import begin, end


@dataclass(frozen=True, kw_only=True)
class DeMo(Reducer):
    """Sends the ``k`` largest coefficients of every chunk of ``chunk`` x ``chunk`` entries.

    The side of a chunk and ``aggregation`` of a coefficient are those of ``ChunkTopK``. Raises ``ValueError``
    for k < 1, for a chunk outside [1, 128] and for another aggregation.
    """

    k: int = 32
    chunk: int = 64
    aggregation: str = "senders"

    knob = Knob("k")
    examples = ({"k": 3, "chunk": 8}, {"k": 2, "chunk": 4, "aggregation": "mean"})
    usual_feedback = "decayed"

    def __post_init__(self) -> None:
        ChunkTopK(k=self.k, chunk=self.chunk, aggregation=self.aggregation)

    @property
    def traits(self) -> Traits:
        return Traits(exact=False, dense=True, of_senders=self.aggregation == "senders")

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        segments, norms = begin(inputs)
        self._transform(segments)
        codec = ChunkTopK(k=self.k, chunk=self.chunk, aggregation=self.aggregation)
        inner = Compress(codec, SenderMean() if codec.traits.of_senders else AllGather())
        reduced, _ = inner.reduce(inputs_of(segments), (), step, communicator)
        means = [segment._replace(rows=reduced.mean[segment.name].unsqueeze(0)) for segment in segments]
        for of_coefficients in (segments, means):
            self._transform(of_coefficients, back=True)
        return end(segments, reduced.mean, norms), state

    def _transform(self, segments: list[Segment], back: bool = False) -> None:
        for segment in segments:
            for row in segment.rows:
                _transform(row, segment.shapes, self.chunk, back)


def _transform(x: Tensor, shapes: Shapes, chunk: int, back: bool) -> None:
    """Replace ``x`` [d] by the DCT of its layers' chunks, or by the inverse.

    The products are those of one worker, in new memory: the rounding of a product may depend on its size and,
    for a single vector, on the address.
    """
    for layer, shape in zip(x.split([math.prod(shape) for shape in shapes]), shapes, strict=True):
        grid = grid_of(shape, chunk)
        tiles = grid.tiles(layer)
        along_rows = _product(tiles, back)
        tiles.copy_(_product(along_rows.mT, back).mT)


def _product(tiles: Tensor, back: bool) -> Tensor:
    """The transform of ``tiles`` [..., a] along the last dimension."""
    side = tiles.shape[-1]
    if side == 1:
        return tiles
    wide = torch.promote_types(tiles.dtype, torch.float32)
    vectors = torch.empty(tiles.shape, dtype=wide, device=tiles.device).copy_(tiles).view(-1, side)
    basis = _basis(side, wide, tiles.device)
    if len(vectors) == 1:
        vectors = torch.cat([vectors, torch.zeros_like(vectors)])
    return (vectors @ (basis if back else basis.T))[: tiles.numel() // side].view(tiles.shape)


@lru_cache(maxsize=256)
def _basis(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The orthonormal DCT-II as a matrix, one cosine in each row, [size, size]."""
    numbers = torch.arange(size, dtype=torch.float64)
    basis = torch.outer(numbers, 2 * numbers + 1).mul_(math.pi / (2 * size)).cos_().mul_(math.sqrt(2 / size))
    basis[0] /= math.sqrt(2)
    return basis.to(device, dtype, non_blocking=True)
