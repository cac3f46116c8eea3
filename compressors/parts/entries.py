"""Sparse entries of joined segments, for reducers that exchange entries in several rounds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Compressed
from compressors.core.communicator import Communicator
from compressors.core.fields import INDICES, VALUES
from compressors.core.payloads import Sparse, as_indices, divide, index_dtype
from compressors.core.reducer import Reduced
from compressors.core.segments import Input
from compressors.kernels.choice import backend_of

KINDS = [VALUES, INDICES]  # of the fields of entries


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


def entries_of(
    compressed: Sequence[Compressed], edges: np.ndarray, *, on_host: bool = False
) -> list[Entries]:
    """The entries of each local worker, from its ``Sparse`` payloads.

    ``on_host`` copies them to the CPU, with two waits for a GPU.
    """
    counts = np.array([own.counts for own in compressed])  # [S, W]
    values = torch.cat([payload.values for own in compressed for payload in own.payloads])
    firsts = zip(compressed, edges.tolist(), strict=False)
    where = torch.cat([payload.indices.long() + at for own, at in firsts for payload in own.payloads])
    if on_host:
        values, where = values.cpu(), where.cpu()
    pieces = [field.split(counts.ravel().tolist()) for field in (values, where)]
    num_workers = counts.shape[1]
    return [Entries(*(torch.cat(field[row::num_workers]) for field in pieces)) for row in range(num_workers)]


def contains(where: Tensor, wanted: Tensor) -> Tensor:
    """Mask of the positions ``wanted`` [k] that are in ``where`` [m], both ascending: [k] bool."""
    if not len(where):
        return torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(where, wanted).clamp_(max=len(where) - 1)
    return where[place] == wanted


def segments_of(where: Tensor, edges: np.ndarray) -> Tensor:
    """The number of the segment of each position ``where`` [k], [k] int64."""
    return torch.searchsorted(torch.from_numpy(edges[1:-1]).to(where.device), where, right=True)


def sums_of(values: Tensor, where: Tensor) -> Entries:
    """The sum at every position, added in the order of the entries, which are on the CPU."""
    places, number = where.long().unique(return_inverse=True)
    total = torch.zeros(len(places), dtype=torch.promote_types(values.dtype, torch.float32))
    total.index_add_(0, number, values.to(total.dtype))  # one entry after another on a CPU
    return Entries(total.to(values.dtype), places)


def gather(found: Sequence[Entries], edges: np.ndarray, communicator: Communicator) -> Entries:
    """All workers' entries ``found``, on every worker; if very uneven, they are first redistributed."""
    values, where = (torch.cat(field) for field in zip(*found, strict=True))
    segment = segments_of(where, edges).cpu().numpy()
    row = np.arange(len(found)).repeat([len(mine.where) for mine in found])
    shape = len(found), len(edges) - 1
    sizes = np.bincount(row * shape[1] + segment, minlength=math.prod(shape)).reshape(shape).T
    lengths = communicator.all_gather_counts(sizes, int(edges[-1]))  # [S, n]
    joined = [[values], [where.to(index_dtype(int(edges[-1])))]]
    moves = moves_of(lengths)
    whole = moves.sum(0)
    if np.diag(whole).sum() < whole.sum():
        local = slice(communicator.local_workers.start, communicator.local_workers.stop)
        own = moves[:, local].swapaxes(0, 1)  # [W, S, n]
        receivers = np.tile(np.arange(communicator.size), math.prod(shape)).repeat(own.ravel())
        order = torch.from_numpy((row * communicator.size + receivers).argsort(kind="stable"))
        order = order.to(where.device)
        fields = [list(field[order].split(own.sum((1, 2)).tolist())) for (field,) in joined]
        fields, _ = communicator.all_to_all_ragged(fields, whole[local], KINDS, whole.T[local])
        joined = [[torch.cat(rows)] for rows in fields]
    (values,), (where,) = communicator.all_gather_ragged(joined, whole.sum(0)[None], KINDS)
    where, order = where.long().sort()
    return Entries(values[order], where)


def moves_of(lengths: np.ndarray) -> np.ndarray:
    """Numbers of entries [S, n, n] that each worker sends to each other one, to even out ``lengths`` [S, n].

    No entry moves in a segment in which no worker has more than twice its even share: a gather of such
    lengths stays within the published bound for redistribution and gather together.
    """
    totals, size = lengths.sum(1), lengths.shape[1]
    even = lengths.max(1) <= 2 * -(-totals // size)
    ends = lengths.cumsum(1)
    targets = totals[:, None] * np.arange(1, size + 1) // size
    upper = np.minimum(ends[:, :, None], targets[:, None])
    lower = np.maximum((ends - lengths)[:, :, None], np.roll(targets, 1, 1)[:, None])
    lower[:, :, 0] = ends - lengths  # the first worker's entries begin at 0
    stay = lengths[:, :, None] * np.eye(size, dtype=np.int64)
    return np.where(even[:, None, None], stay, np.maximum(upper - lower, 0))


def finish(
    final: Entries,
    own: Sequence[Entries],
    kept: Sequence[Tensor],
    inputs: list[Input],
    compressed: Sequence[Compressed],
    num_workers: int,
) -> Reduced:
    """The result of a reduction, with the mean from the sums ``final``.

    Entries of ``own`` that are ``kept`` [k] bool count as sent; the others return to the residual. ||p||^2 is
    copied from ``compressed``.
    """
    edges, device = edges_between(inputs), inputs[0].rows.device
    sizes = [len(final.where), *(2 * [len(mine.where) for mine in own])]
    joined = torch.cat([final.where, *(mine.where for mine in own), *(flags.long() for flags in kept)])
    everything, *rest = np.split(joined.cpu().numpy(), np.cumsum(sizes)[:-1])  # the only wait for a GPU
    mean, payloads = {}, [list[Sparse]() for _ in inputs]
    sent = [np.zeros((len(own), len(given.segment.shapes)), dtype=np.int64) for given in inputs]
    sums = _by_segment(final.values, everything, np.arange(len(everything)), edges, device)
    for given, before, (values, where) in zip(inputs, compressed, sums, strict=True):
        out = before.out if before.out is not None else given.rows.new_zeros(given.size)
        mean[given.name] = out.index_copy_(0, _on(device, where), divide(values, num_workers).to(out.dtype))
    for row, (mine, where, flags) in enumerate(zip(own, rest, rest[len(own) :], strict=False)):
        back = _by_segment(mine.values, where, np.flatnonzero(flags == 0), edges, device)
        arrived = _by_segment(mine.values, where, np.flatnonzero(flags), edges, device)
        for number, (given, dropped, part) in enumerate(zip(inputs, back, arrived, strict=True)):
            given.rows[row].index_copy_(0, _on(device, dropped[1]), dropped[0])
            payloads[number].append(Sparse(part[0], as_indices(part[1], given.size, device)))
            sent[number][row] = np.diff(np.searchsorted(part[1], given.segment.edges))
    left = [given.segment._replace(rows=given.rows) for given in inputs]
    errors = backend_of(device).squared_norms(left)
    result = {
        segment.name: before._replace(sent=counts, error=error, payloads=found, out=None)
        for segment, before, found, counts, error in zip(
            left, compressed, payloads, sent, errors, strict=True
        )
    }
    return Reduced(mean, {segment.name: segment.rows for segment in left}, result)


def _by_segment(
    values: Tensor, where: np.ndarray, chosen: np.ndarray, edges: np.ndarray, device: torch.device
) -> list[tuple[Tensor, np.ndarray]]:
    """The ``chosen`` entries of each segment, and their positions within it."""
    picked = values.to(device, non_blocking=True).index_select(0, _on(device, chosen))
    cuts = np.searchsorted(where[chosen], edges)
    positions = np.split(where[chosen], cuts[1:-1])
    parts = picked.split(np.diff(cuts).tolist())
    return [(part, own - first) for part, own, first in zip(parts, positions, edges.tolist(), strict=False)]


def _on(device: torch.device, numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(numbers).to(device, non_blocking=True)
