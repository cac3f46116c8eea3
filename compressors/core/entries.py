"""Helpers for reducers that exchange sparse entries in several rounds: joined segments, and the result."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.backends import backend_of, count_sent
from compressors.core.codec import Compressed
from compressors.core.payloads import Sparse, divide, index_dtype
from compressors.core.reducer import Reduced
from compressors.core.segments import Input


class Entries(NamedTuple):
    """Entries of several segments; positions count from the first element of the first segment."""

    values: Tensor  # [K]
    where: Tensor  # [K] int64, ascending

    def parts(self, edges: np.ndarray) -> list["Entries"]:
        """The entries of each segment, with positions within it; segments lie between ``edges`` [S + 1]."""
        inner = torch.from_numpy(edges[1:-1]).to(self.where.device)
        counts = np.diff(
            torch.searchsorted(self.where, inner).cpu().numpy(), prepend=0, append=len(self.where)
        )
        pieces = zip(*(field.split(counts.tolist()) for field in self), edges[:-1].tolist(), strict=True)
        return [Entries(values, where - first) for values, where, first in pieces]


def edges_between(inputs: Sequence[Input]) -> np.ndarray:
    """Boundaries of joined segments, [S + 1] int64."""
    return np.cumsum([0, *(given.size for given in inputs)])


def entries_of(compressed: Sequence[Compressed], edges: np.ndarray) -> list[Entries]:
    """The payloads ``Sparse`` of all segments, for each local worker."""
    of_segments = []
    for own, first in zip(compressed, edges.tolist(), strict=False):
        values, indices = (torch.cat([payload[i] for payload in own.payloads]) for i in range(2))
        counts = own.counts.tolist()
        of_segments.append((values.split(counts), (indices.long() + first).split(counts)))
    num_workers = len(compressed[0].sent)
    return [
        Entries(*(torch.cat([fields[i][row] for fields in of_segments]) for i in range(2)))
        for row in range(num_workers)
    ]


def contains(where: Tensor, wanted: Tensor) -> Tensor:
    """Which of ``wanted`` [k] are in ``where`` [m], both ascending: [k] bool."""
    if not len(where):
        return torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(where, wanted).clamp_(max=len(where) - 1)
    return where[place] == wanted


def finish(
    final: Entries,
    own: Sequence[Entries],
    kept: Sequence[Tensor],
    inputs: list[Input],
    compressed: Sequence[Compressed],
    num_workers: int,
) -> Reduced:
    """The result: the mean of the sums ``final``, without entries of ``own`` that are not ``kept`` [k] bool.

    These return to the residual. An element is sent if it is kept. The norms of ``compressed`` are taken
    over.
    """
    edges = edges_between(inputs)
    mean, payloads = {}, [list[Sparse]() for _ in inputs]
    for given, before, (values, where) in zip(inputs, compressed, final.parts(edges), strict=True):
        out = before.out if before.out is not None else given.rows.new_zeros(given.size)
        summed = divide(values.clone(), num_workers).to(out.dtype)
        mean[given.name] = out.index_copy_(0, where, summed)
    for row, (mine, flags) in enumerate(zip(own, kept, strict=True)):
        back = Entries(mine.values[~flags], mine.where[~flags]).parts(edges)
        sent = Entries(mine.values[flags], mine.where[flags]).parts(edges)
        for given, dropped, part, found in zip(inputs, back, sent, payloads, strict=True):
            given.rows[row].index_copy_(0, dropped.where, dropped.values)
            found.append(Sparse(part.values, part.where.to(index_dtype(given.size))))
    left = [given.segment._replace(rows=given.rows) for given in inputs]
    errors = backend_of(left[0].rows.device).squared_norms(left)
    result = {}
    for segment, before, found, error in zip(left, compressed, payloads, errors, strict=True):
        counts = np.array([[len(payload.values)] for payload in found])
        now = before._replace(sent=counts, error=error, payloads=found, out=None)
        result[segment.name] = now._replace(sent=count_sent(now, segment.edges))
    return Reduced(mean, {segment.name: segment.rows for segment in left}, result)
