"""gTop-k: the k largest magnitudes of sums of Top-k payloads, found in a tree of exchanges.

Shi, Wang, Zhao, Tang, Wang, Huang and Chu, 2019, https://arxiv.org/abs/1901.04359. Every worker begins with
its Top-k. In each of log2 n rounds, groups of workers form pairs. The two groups exchange their entries, add
them, and keep the k largest magnitudes; then they form one group. After the last round all workers have the
same k sums. Biased. Per element and round 8 bytes: an fp32 sum and a 4-byte index. If a round drops a sum,
its entries return to their workers' residuals.

Deviations from the paper. In the paper, the entries of a worker's Top-k outside the final k positions return
to its residual. An entry is therefore lost if one round drops it and a later round adds its position again;
here it returns to the residual. The paper's n is a power of two. For another n the groups are halves of a
range of workers, as equal as possible, there are ceil(log2 n) rounds, and a worker of the smaller group may
send to two workers.

Messages: all workers exchange in every round, n log2 n messages a step for n a power of two. The authors'
code (https://github.com/hclhkbu/gtopkssgd) sums towards one worker, which broadcasts the result: 2 (n - 1)
messages in twice as many rounds. The bytes here are n log2 n / (2 (n - 1)) times theirs: 1.33 with n = 4,
1.71 with n = 8. Only the exchange tells every worker which of its entries a round has dropped, without which
they are lost as in the paper.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    Communicator,
    Input,
    Reduced,
    ReducerWithDensity,
    State,
    Step,
    Traits,
    backend_of,
    squared_norm,
)
from compressors.core.payloads import index_dtype
from compressors.parts.entries import KINDS, Entries, contains, edges_between, entries_of, finish
from compressors.parts.searches import largest, magnitude_keys
from compressors.top_k import TopK


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
    waits = ("1 + G", "1 + G", "")

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        workers, top_k = communicator.local_workers, _Candidates(density=self.density_at(step))
        backend = backend_of(inputs[0].rows.device)
        local = backend.compress([top_k] * len(inputs), inputs, step, workers)
        own = entries_of(local, edges_between(inputs))
        tree = Tree(inputs, [top_k.elements_at(step, given.size) for given in inputs])
        held, kept = own, [torch.ones_like(mine.where, dtype=torch.bool) for mine in own]
        for of_round in rounds_of(communicator.size):
            held = tree.next_round(held, of_round, communicator)
            for flags, theirs, mine in zip(kept, held, own, strict=True):
                flags &= contains(theirs.where, mine.where)
        return finish(held[0], own, kept, inputs, local, communicator.size), state


class _Candidates(TopK):
    """Top-k whose entries may be dropped later, in the worst case all of them."""

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()

    def norm_bound(self, size: int, step: Step) -> tuple[float, float]:
        return math.inf, 0.0


class Round(NamedTuple):
    """One round of ``size`` workers."""

    sources: list[int]  # the worker that each receives from; its own id if it receives nothing
    groups: list[int]  # the first worker of the group that each is part of afterwards


def rounds_of(size: int) -> list[Round]:
    """The rounds of a tree whose groups are halves of halves of all workers.

    Worker i of a group and worker i of the other one exchange. If one group has one worker more, this worker
    receives from the first worker of the other group and sends nothing.
    """
    rounds, groups = [], [range(size)]
    while any(len(group) > 1 for group in groups):
        own, halves = Round(list(range(size)), list(range(size))), []
        for group in groups:
            left, right = group[: -(-len(group) // 2)], group[-(-len(group) // 2) :]
            for number, worker in enumerate(group):
                other = right if worker in left else left
                own.sources[worker] = other[number % len(left) % len(other)] if right else worker
                own.groups[worker] = group[0]
            halves += [half for half in (left, right) if half]
        rounds.append(own)
        groups = halves
    return rounds[::-1]


class Tree:
    """Rounds of exchanges of ``counts`` [S] entries of the segments, as many from every worker."""

    def __init__(self, inputs: Sequence[Input], counts: Sequence[int]) -> None:
        self.counts = list(counts)
        self.dtype = index_dtype(max(given.size for given in inputs))  # of positions within a segment
        firsts = np.repeat(edges_between(inputs)[:-1], counts)  # of the segment of each entry, [K]
        self.firsts = torch.from_numpy(firsts).to(inputs[0].rows.device, non_blocking=True)

    def next_round(self, held: list[Entries], of_round: Round, communicator: Communicator) -> list[Entries]:
        """The entries of each local worker after the round; all workers of a group hold the same."""
        values, where = (torch.stack(field) for field in zip(*held, strict=True))
        fields = [values, (where - self.firsts).to(self.dtype)]
        values, positions = communicator.exchange(fields, of_round.sources, KINDS)
        now: dict[int, Entries] = {}
        for row, worker in enumerate(communicator.local_workers):
            group = of_round.groups[worker]
            if of_round.sources[worker] == worker:
                now[group] = held[row]
            elif group not in now:  # addition commutes, so both groups compute the same bits
                now[group] = self.merged(held[row], Entries(values[row], positions[row] + self.firsts))
        return [now[of_round.groups[worker]] for worker in communicator.local_workers]

    def merged(self, one: Entries, other: Entries) -> Entries:
        """The k largest magnitudes of the sum in each segment; ties go to the lowest position."""
        where, order = torch.cat([one.where, other.where]).sort(stable=True)
        values = torch.cat([one.values, other.values])[order]
        twice = where[1:] == where[:-1]
        values[:-1] += values[1:].where(twice, 0)
        keys = magnitude_keys(values)
        keys[1:].masked_fill_(twice, -1)
        of_segments = zip(keys.split([2 * k for k in self.counts]), self.counts, strict=True)
        flags = torch.cat([largest(own, k) for own, k in of_segments])
        kept = flags if flags.is_cpu else torch.nonzero_static(flags, size=sum(self.counts)).squeeze(1)
        return Entries(values[kept], where[kept])
