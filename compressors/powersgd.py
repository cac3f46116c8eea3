"""PowerSGD: every matrix as a product of two thin matrices, by a step of power iteration in two all-reduces.

Vogels, Karimireddy and Jaggi, 2019, https://arxiv.org/abs/1905.13727, algorithm 1. For the mean M [m, n] of
all workers' matrices: P = M Q, orthonormal columns P' of P, Q = M^T P', and C(M) = P' Q^T. Q is the start of
the next step ("warm start"). Biased: C(M) is the orthogonal projection of M onto the span of P', so
||M - C(M)|| <= ||M||, and C(M) = M for M of rank r or less, unless Q misses a part of its row space. A matrix
of m n elements takes r (m + n) values; vectors are sent uncompressed. A layer [m, ...] is a matrix of m rows,
also in ``scope=global``.

Deviations from the paper: a matrix that would not become smaller is sent uncompressed. Columns are
orthogonalised by a QR decomposition instead of Gram-Schmidt: with the latter, Q would stay zero after a zero
gradient.

Residuals: worker w sends its product Q_w = M_w^T P'. It keeps M_w - P' Q_w^T (``residual="local"``), as the
paper's algorithm 2 and the authors' library do, or M_w - P' Q^T (``"mean"``), as the code of the paper's
experiments and torch's hook do. The means are equal up to rounding, because the residuals have the same mean.
``local`` is the default: it is the error of what the worker sent, and its norm is at most that of M_w. The
other residual also has the differences between workers, which are never sent. They add up: with independent
noise the squared norm grows in proportion to the steps (after 1,000 steps of rank 2 on a matrix [12, 10], 63
times that of ``local``).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.api import (
    Communicator,
    Input,
    Knob,
    Reduced,
    Reducer,
    Segment,
    Shared,
    State,
    Step,
    Traits,
    is_count,
    require,
    require_flag,
)
from compressors.core.randomness import generator
from compressors.parts.rounds import begin, end, layers_of, mean_of


@dataclass(frozen=True, kw_only=True)
class PowerSGD(Reducer):
    """Sends r (m + n) values for a matrix [m, n], with r = ``rank``, at most min(m, n).

    A higher rank sends more and keeps a smaller residual. ``warm_start=False`` draws a new normal Q in each
    step; otherwise the first Q is the same in every run. A worker keeps its matrix less its own projection
    (``residual="local"``) or less the mean's (``"mean"``). Raises ``ValueError`` for a rank below 1 and for
    another residual.
    """

    rank: int = 2
    warm_start: bool = True
    residual: str = "local"

    knob = Knob("rank")
    examples = ({"rank": 1}, {"rank": 2, "warm_start": False}, {"rank": 2, "residual": "mean"})

    def __post_init__(self) -> None:
        require(is_count(self.rank), "PowerSGD.rank", "an integer >= 1", self.rank)
        require_flag("PowerSGD.warm_start", self.warm_start)
        require(self.residual in ("local", "mean"), "PowerSGD.residual", "'local' or 'mean'", self.residual)

    @property
    def traits(self) -> Traits:
        return Traits(exact=False, dense=True, seeded=not self.warm_start)

    def init(self, segments: list[Segment]) -> State:
        """Q^T [r, n] of every matrix, equal on all workers; nothing without a warm start."""
        return Shared(self._drawn(segments) if self.warm_start else {})

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        segments, norms = begin(inputs)
        layers = layers_of(segments)
        start = state.state if self.warm_start else self._drawn(segments, step.seed, step.number)
        matrices = {name: layer.flatten(2) for name, layer in layers.items() if name in start}
        left = {name: _products(start[name], x.mT) for name, x in matrices.items()}  # P^T, [W, r, m]
        means = mean_of(layers | left, communicator)
        bases = {name: _orthonormal(means[name]) for name in matrices}  # P'^T, [r, m]
        right = {name: _products(bases[name], x) for name, x in matrices.items()}
        found = mean_of(right, communicator)  # Q^T, [r, n]
        wholes = {given.name: _memory(given) for given in inputs}  # for the means, [d]
        parts = layers_of([s._replace(rows=wholes[s.name][None]) for s in segments])
        for name, layer in layers.items():
            if name not in matrices:
                parts[name].copy_(means[name])
                layer.zero_()
                continue
            basis = bases[name].T
            kept = right[name] if self.residual == "local" else found[name].expand_as(right[name])
            for row, sent in zip(matrices[name], kept, strict=True):
                row.addmm_(basis, sent, alpha=-1)
            torch.mm(basis, found[name], out=parts[name][0].flatten(1))
        return end(segments, wholes, norms), Shared(state.state | found) if self.warm_start else state

    def _drawn(self, segments: list[Segment], *salt: int) -> dict[str, Tensor]:
        """A normal Q^T [r, n] for each matrix that compression makes smaller."""
        found = {}
        for segment in segments:
            for number, shape in enumerate(segment.shapes):
                name = f"{segment.name}/{number}"
                rows, columns = _matrix(shape)
                rank = min(self.rank, rows, columns)
                if rank * (rows + columns) < rows * columns:
                    drawn = torch.randn(  # for any default dtype, the same numbers
                        rank, columns, generator=generator("powersgd", name, *salt), dtype=torch.float32
                    )
                    like = segment.rows
                    found[name] = drawn.to(like.device, like.dtype, non_blocking=True)
        return found


def _memory(given: Input) -> Tensor:
    """Memory for a mean, [d]: a gradient's buffer if p is elsewhere, because new memory is slow to access."""
    rows = given.segment.rows
    return rows[0] if given.memory is not None else torch.empty_like(rows[0])


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a layer as a matrix; a vector has one column."""
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)


def _products(factor: Tensor, matrices: Tensor) -> Tensor:
    """``factor`` [r, a] times each of ``matrices`` [W, a, b]: [W, r, b].

    The products are computed one after another: the rounding of a batched product could depend on the number
    of workers in this process. The rounding of one product can depend on addresses. ``factor`` is copied,
    because the address of a mean depends on the number of processes. With a single vector, the rounding
    depends on the address of the matrix; a second vector, of zeros, avoids this. Factors are stored by rows:
    BLAS takes up to eight times as long with thin columns.
    """
    rank = len(factor)
    padded = torch.cat([factor, torch.zeros_like(factor)]) if rank == 1 else factor.clone()
    return torch.stack([(padded @ matrix)[:rank] for matrix in matrices])


def _orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows [r, m] whose span contains ``rows`` [r, m]."""
    wide = torch.promote_types(rows.dtype, torch.float32)  # LAPACK has no half precision
    return torch.linalg.qr(rows.T.to(wide)).Q.T.contiguous().to(rows.dtype)
