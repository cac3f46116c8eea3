"""gTop-k: the k largest magnitudes of sums of Top-k payloads, found in a tree of exchanges.

Shi, Wang, Zhao, Tang, Wang, Huang and Chu, 2019, https://arxiv.org/abs/1901.04359. Every worker begins with
its Top-k. In each of log2 n rounds, groups of workers form pairs. The two groups exchange what they hold, add
it, and keep the k largest magnitudes; then they are one group. After the last round all workers hold the same
k sums. Biased. Per element and round 8 bytes: an fp32 sum and a 4-byte index. What a round drops returns to
the residuals of all workers that contributed to it.

Deviations from the paper. It puts back a worker's Top-k without the final k positions. An entry dropped in
one round is lost there if another group brings in its position later; here it is put back. The paper's n is a
power of two. For another n the groups are halves of a range of workers, as equal as possible, there are
ceil(log2 n) rounds, and a worker of the smaller group may send to two workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    INDICES,
    VALUES,
    Communicator,
    Compressed,
    Input,
    Reduced,
    ReducerWithDensity,
    Sparse,
    State,
    Step,
    Traits,
)
from compressors.core.backends import backend_of, count_sent
from compressors.core.payloads import divide, index_dtype
from compressors.top_k import TopK, largest, magnitude_keys


class Held(NamedTuple):
    """Entries of all segments; positions count from the first segment's first element."""

    values: Tensor  # [K]
    where: Tensor  # [K] int64, ascending


@dataclass(frozen=True, kw_only=True)
class GTopK(ReducerWithDensity):
    """Averages k = max(1, floor(density * d)) positions of every segment.

    An entry of a worker is sent if the final sum at its position contains it; these are at most k. A higher
    density sends more and keeps a smaller residual; ``schedule`` varies it over the epochs. Raises
    ``ValueError`` for a density outside (0, 1].
    """

    traits = Traits(lossless_at={"density": 1.0, "schedule": "constant"})
    has_a_value_each = False  # later rounds carry sums
    examples = ({"density": 0.1},)

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        backend, workers = backend_of(inputs[0].rows.device), communicator.local_workers
        top_k = TopK(density=self.density_at(step))
        local = backend.compress([top_k] * len(inputs), inputs, step, workers)
        sizes = [given.size for given in inputs]
        table = Table(sizes, [top_k.elements_at(step, size) for size in sizes], inputs[0].rows.device)
        own = table.joined(local, len(workers))
        held, kept = own, [torch.ones_like(mine.where, dtype=torch.bool) for mine in own]
        for sources in sources_of_rounds(communicator.size):
            held = _next_round(held, sources, table, communicator)
            kept = [
                flags & _contains(theirs.where, mine.where)
                for flags, theirs, mine in zip(kept, held, own, strict=True)
            ]
        mean = {}
        for given, (values, where) in zip(inputs, table.parts(held[0]), strict=True):
            out = given.rows.new_zeros(given.size)
            mean[given.name] = out.index_copy_(0, where, divide(values.clone(), communicator.size))
        sent: list[list[Sparse]] = [[] for _ in inputs]
        for row, (mine, flags) in enumerate(zip(own, kept, strict=True)):
            for given, part, arrived, payloads in zip(
                inputs, table.parts(mine), flags.split(table.counts), sent, strict=True
            ):
                dropped = ~arrived
                given.rows[row].index_copy_(0, part.where[dropped], part.values[dropped])
                where = part.where[arrived].to(index_dtype(given.size))
                payloads.append(Sparse(part.values[arrived], where))
        left = [given.segment._replace(rows=given.rows) for given in inputs]
        compressed = {
            segment.name: _measured(before, payloads, error, segment.edges)
            for segment, before, payloads, error in zip(
                left, local, sent, backend.squared_norms(left), strict=True
            )
        }
        return Reduced(mean, {segment.name: segment.rows for segment in left}, compressed), state


def sources_of_rounds(size: int) -> list[list[int]]:
    """Per round the worker that each of ``size`` workers receives from, itself if from none.

    Groups are halves of halves of all workers. Worker i of a group and worker i of the other one exchange; if
    one group has a worker more, that worker receives from the first of the other group and sends nothing.
    """
    rounds, groups = [], [list(range(size))]
    while any(len(group) > 1 for group in groups):
        sources, halves = list(range(size)), []
        for group in groups:
            middle = (len(group) + 1) // 2
            left, right = group[:middle], group[middle:]
            for number, worker in enumerate(left if right else []):
                sources[worker] = right[number % len(right)]
            for number, worker in enumerate(right):
                sources[worker] = left[number]
            halves += [half for half in (left, right) if half]
        rounds.append(sources)
        groups = halves
    return rounds[::-1]


class Table:
    """Segments of ``sizes`` [S] one after the other, with ``counts`` [S] entries in each payload."""

    def __init__(self, sizes: Sequence[int], counts: Sequence[int], device: torch.device) -> None:
        self.counts = list(counts)
        self.firsts = np.cumsum([0, *sizes])[:-1].tolist()
        self.dtype = index_dtype(max(sizes))  # of positions within a segment
        first_of_entries = np.repeat(self.firsts, counts)
        self.first_of_entries = torch.from_numpy(first_of_entries).to(device, non_blocking=True)  # [K]

    def joined(self, compressed: Sequence[Compressed], num_workers: int) -> list[Held]:
        """The payloads of all segments, for each of ``num_workers`` local workers."""
        rows = []
        for name in Sparse._fields:
            fields = [torch.cat([getattr(p, name) for p in own.payloads]) for own in compressed]
            rows.append(torch.cat([field.view(num_workers, -1) for field in fields], 1))
        values, indices = rows
        return [
            Held(*of_worker) for of_worker in zip(values, indices.long() + self.first_of_entries, strict=True)
        ]

    def parts(self, held: Held) -> list[Held]:
        """The entries of each segment, with positions within the segment."""
        pieces = zip(held.values.split(self.counts), held.where.split(self.counts), self.firsts, strict=True)
        return [Held(values, where - first) for values, where, first in pieces]

    def merged(self, one: Held, other: Held) -> Held:
        """The k largest magnitudes of the sum of two payloads in each segment; ties go to the lowest
        position."""
        where, order = torch.cat([one.where, other.where]).sort(stable=True)
        values = torch.cat([one.values, other.values])[order]
        twice = where[1:] == where[:-1]
        values[:-1] += values[1:].where(twice, 0)
        keys = magnitude_keys(values)
        keys[1:].masked_fill_(twice, -1)
        of_segments = zip(keys.split([2 * k for k in self.counts]), self.counts, strict=True)
        kept = torch.cat([largest(own, k) for own, k in of_segments])
        return Held(values[kept], where[kept])


def _next_round(
    held: list[Held], sources: Sequence[int], table: Table, communicator: Communicator
) -> list[Held]:
    """What the local workers hold after they have received from ``sources``."""
    values = torch.stack([mine.values for mine in held])
    positions = torch.stack([mine.where for mine in held]) - table.first_of_entries
    arrived = communicator.exchange([values, positions.to(table.dtype)], sources, [VALUES, INDICES])
    theirs = zip(arrived[0], arrived[1].long() + table.first_of_entries, strict=True)
    return [
        mine if sources[worker] == worker else table.merged(mine, Held(*other))
        for worker, mine, other in zip(communicator.local_workers, held, theirs, strict=True)
    ]


def _contains(where: Tensor, wanted: Tensor) -> Tensor:
    """Which of ``wanted`` [k] are in ``where`` [m], both ascending: [k] bool."""
    place = torch.searchsorted(where, wanted).clamp_(max=len(where) - 1)
    return where[place] == wanted


def _measured(before: Compressed, payloads: list[Sparse], error: Tensor, edges: np.ndarray) -> Compressed:
    counts = np.array([[len(payload.values)] for payload in payloads])
    now = before._replace(sent=counts, error=error, payloads=payloads, out=None)
    return now._replace(sent=count_sent(now, edges))
