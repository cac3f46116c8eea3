"""Sparse entries of joined segments, for reducers that exchange entries in several rounds."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Compressed
from compressors.core.communicator import Communicator
from compressors.core.fields import INDICES, VALUES
from compressors.core.payloads import Sparse, as_indices, divide, index_dtype, on_host
from compressors.core.reducer import Reduced
from compressors.core.segments import Input
from compressors.kernels.choice import backend_of

KINDS = [VALUES, INDICES]  # of the fields of entries
# On the CPU, the threads of torch wait for each other. If other processes use the cores, sorts, searches and
# indices of 11,000 entries take over a hundred times as long with two threads as with one. NumPy and
# ``index_select`` use one thread. NumPy also sorts entries that are already sorted by worker in a fiftieth of
# the time of torch 2.13's sort.


class Entries(NamedTuple):
    """Entries of several segments; positions count from the first element of the first segment."""

    values: Tensor  # [K]
    where: Tensor  # [K] int64, ascending

    def at(self, places: Tensor) -> "Entries":
        """The entries with the numbers ``places`` [k] int64."""
        return Entries(*(field.index_select(0, places) for field in self))

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


def entries_of(compressed: Sequence[Compressed], edges: np.ndarray, *, copy: bool = False) -> list[Entries]:
    """The entries of each local worker, from its ``Sparse`` payloads.

    ``copy`` copies them to the CPU, with one wait for a GPU.
    """
    counts = np.array([own.counts for own in compressed])  # [S, W]
    values = torch.cat([payload.values for own in compressed for payload in own.payloads])
    firsts = zip(compressed, edges.tolist(), strict=False)
    where = torch.cat([payload.indices.long() + at for own, at in firsts for payload in own.payloads])
    if copy:
        where, values = on_host([where, values])
    pieces = [field.split(counts.ravel().tolist()) for field in (values, where)]
    num_workers = counts.shape[1]
    return [Entries(*(torch.cat(field[row::num_workers]) for field in pieces)) for row in range(num_workers)]


def contains(where: Tensor, wanted: Tensor) -> Tensor:
    """Mask of the positions ``wanted`` [k] that are in ``where`` [m], both ascending: [k] bool."""
    if not len(where):
        return torch.zeros_like(wanted, dtype=torch.bool)
    place = places_among(where, wanted).clamp_(max=len(where) - 1)
    return where.index_select(0, place) == wanted


def order_of(numbers: Tensor) -> Tensor:
    """The stable ascending order of ``numbers`` [k], which are on the CPU, [k] int64."""
    return torch.from_numpy(numbers.numpy().argsort(kind="stable"))


def places_among(ascending: Tensor, numbers: Tensor, *, right: bool = False) -> Tensor:
    """``torch.searchsorted`` of ``numbers`` [k] on their device, [k] int64."""
    if not numbers.is_cpu:
        return torch.searchsorted(ascending, numbers, right=right)
    side: Literal["left", "right"] = "right" if right else "left"
    return torch.from_numpy(np.searchsorted(ascending.numpy(), numbers.numpy(), side))


def segments_of(where: Tensor, edges: np.ndarray) -> Tensor:
    """The number of the segment of each position ``where`` [k], [k] int64."""
    return places_among(torch.from_numpy(edges[1:-1]).to(where.device), where, right=True)


def sums_of(values: Tensor, where: Tensor) -> Entries:
    """The sum at every position, added in the order of the entries, which are on the CPU."""
    places, number = map(torch.from_numpy, np.unique(where.numpy(), return_inverse=True))
    total = torch.zeros(len(places), dtype=torch.promote_types(values.dtype, torch.float32))
    total.index_add_(0, number, values.to(total.dtype))  # one entry after another on a CPU
    return Entries(total.to(values.dtype), places.long())


def gather(found: Sequence[Entries], edges: np.ndarray, communicator: Communicator) -> Entries:
    """All workers' entries ``found``, on every worker; if very uneven, they are first redistributed.

    The entries are on the CPU.
    """
    values, where = (torch.cat(field) for field in zip(*found, strict=True))
    segment = segments_of(where, edges).numpy()
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
        fields = [list(field.index_select(0, order).split(own.sum((1, 2)).tolist())) for (field,) in joined]
        fields, _ = communicator.all_to_all_ragged(fields, whole[local], KINDS, whole.T[local])
        joined = [[torch.cat(rows)] for rows in fields]
    (values,), (where,) = communicator.all_gather_ragged(joined, whole.sum(0)[None], KINDS)
    return Entries(values, where.long()).at(order_of(where))


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
    sent = [np.zeros((len(own), len(given.segment.shapes)), dtype=np.int64) for given in inputs]
    smallest = index_dtype(max(given.size for given in inputs))
    mean, payloads = (
        _means(final, everything, inputs, compressed, num_workers),
        [list[Sparse]() for _ in inputs],
    )
    for row, (mine, where, flags) in enumerate(zip(own, rest, rest[len(own) :], strict=False)):
        back = _by_segment(mine.values, where, np.flatnonzero(flags == 0), edges, device)
        arrived = _by_segment(mine.values, where, np.flatnonzero(flags), edges, device, smallest)
        for number, (given, dropped, part) in enumerate(zip(inputs, back, arrived, strict=True)):
            if len(dropped.values):
                given.rows[row].index_copy_(0, dropped.where, dropped.values)
            payloads[number].append(Sparse(part.values, part.where.to(index_dtype(given.size))))
            sent[number][row] = np.diff(np.searchsorted(part.on_host, given.segment.edges))
    left = [given.segment._replace(rows=given.rows) for given in inputs]
    errors = backend_of(device).squared_norms(left)
    result = {
        segment.name: before._replace(sent=counts, error=error, payloads=found, out=None)
        for segment, before, found, counts, error in zip(
            left, compressed, payloads, sent, errors, strict=True
        )
    }
    return Reduced(mean, {segment.name: segment.rows for segment in left}, result)


def _means(
    final: Entries,
    where: np.ndarray,
    inputs: list[Input],
    compressed: Sequence[Compressed],
    num_workers: int,
) -> dict[str, Tensor]:
    """Means of the segments, [d] each, from the sums ``final`` at the positions ``where``."""
    edges, like = edges_between(inputs), inputs[0].rows
    values = divide(final.values.to(like.device, non_blocking=True, copy=True), num_workers).to(like.dtype)
    outs = [before.out for before in compressed if before.out is not None]
    if len(outs) < len(inputs):  # no loop has provided memory: all segments by one operator
        total = like.new_zeros(int(edges[-1])).index_copy_(0, _on(like.device, where), values)
        outs = list(total.split(np.diff(edges).tolist()))
    else:
        parts = _by_segment(values, where, np.arange(len(where)), edges, like.device)
        for out, part in zip(outs, parts, strict=True):
            out.index_copy_(0, part.where, part.values)
    return {given.name: out for given, out in zip(inputs, outs, strict=True)}


class _Part(NamedTuple):
    """Entries of one segment, with positions within it."""

    values: Tensor  # [k]
    where: Tensor  # [k]
    on_host: np.ndarray  # the same, int64


def _by_segment(
    values: Tensor,
    where: np.ndarray,
    chosen: np.ndarray,
    edges: np.ndarray,
    device: torch.device,
    dtype: torch.dtype = torch.int64,
) -> list[_Part]:
    """The ``chosen`` entries of each segment, positions in ``dtype``. All segments are copied to ``device``
    together."""
    picked = values.to(device, non_blocking=True).index_select(0, _on(device, chosen))
    cuts = np.searchsorted(where[chosen], edges)
    counts = np.diff(cuts)
    local = where[chosen] - edges[:-1].repeat(counts)
    sizes = counts.tolist()
    on_device = as_indices(local, torch.iinfo(dtype).max, device)
    fields = (picked.split(sizes), on_device.split(sizes), np.split(local, cuts[1:-1]))
    return [_Part(*own) for own in zip(*fields, strict=True)]


def _on(device: torch.device, numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(numbers).to(device, non_blocking=True)
