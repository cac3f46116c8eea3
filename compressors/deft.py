"""DEFT: every worker chooses the largest magnitudes of its layers, for all workers.

Yoon and Oh, 2023, https://arxiv.org/abs/2307.03500. A layer of more than d / n elements is split into n
parts. Worker i divides k = max(1, floor(density * d)) among the parts in proportion to the norms of its p:
from the largest norm on, a part gets the share of its norm in the norms that are left, of the number that is
left, at least 1 and at most its size; what is left at the end goes to the parts with the largest norms. A
leader, worker t mod n in step t, packs the parts into n bins of similar cost, size times log2 of the leader's
number for the part: the most expensive part first, into the emptiest bin. The packing is broadcast. Worker i
chooses the largest magnitudes in the parts of bin (i + t) mod n, as many as it computed for each. The chosen
positions are gathered, and all workers send their values at these positions.

Biased; about k elements. Per element: 4 bytes for an fp32 value from every worker, all-reduced, and a 4-byte
index from the worker that chose it; a 4-byte count per segment and worker, and 4 bytes per part from the
leader. The method is meant for ``scope=global``: with ``scope=layer`` a segment has one layer.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    Codec,
    CodecWithDensity,
    Communicator,
    Input,
    Sparse,
    State,
    Step,
    Traits,
    squared_norm,
)
from compressors.core.exclusive import choose_everywhere, vector
from compressors.core.segments import Shapes
from compressors.top_k import TopK


@dataclass(frozen=True, kw_only=True)
class DEFT(CodecWithDensity):
    """Sends all workers' entries at the positions that one worker chooses in each part of a segment.

    A higher density sends more and keeps a smaller residual; ``schedule`` varies it over the epochs. Raises
    ``ValueError`` for a density outside (0, 1].
    """

    payload = Sparse
    traits = Traits(linear=True, seeded=True, lossless_at={"density": 1.0, "schedule": "constant"})
    examples = ({"density": 0.1},)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        raise TypeError("DEFT sends what all workers choose together: choose() says where")

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()

    def choose(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], State]:
        number, workers = communicator.size, communicator.local_workers
        edges = [parts_of(given.segment.shapes, number) for given in inputs]
        numbers = [self._numbers(inputs, edges, row, step) for row in range(len(workers))]  # [W][S] [parts]
        leader = step.number % number
        bins = torch.zeros(sum(len(own) - 1 for own in edges), dtype=torch.int32)
        if leader in workers:
            of_leader = zip(edges, numbers[workers.index(leader)], strict=True)
            packed = [packed_into(number, np.diff(own), counts) for own, counts in of_leader]
            bins = torch.from_numpy(np.concatenate(packed).astype(np.int32))
        bins = communicator.broadcast_from(leader, bins, "metadata")
        split = bins.split([len(own) - 1 for own in edges])
        positions = []
        for segment, (given, own, of_parts) in enumerate(zip(inputs, edges, split, strict=True)):
            found = []
            for row, worker in enumerate(workers):
                mine = np.flatnonzero(of_parts.numpy() == (worker + step.number) % number)
                found.append(_largest(given, row, own, mine, numbers[row][segment], step))
            positions.append(found)
        return choose_everywhere(inputs, positions, communicator)[0], state

    def _numbers(
        self, inputs: list[Input], edges: list[np.ndarray], row: int, step: Step
    ) -> list[np.ndarray]:
        """Per segment how many elements one worker would choose in each part."""
        squares = []
        for given, own in zip(inputs, edges, strict=True):
            parts = vector(given, row).split(np.diff(own).tolist())
            squares += [squared_norm(part) for part in parts]
        norms = torch.stack(squares).sqrt_().cpu().split([len(own) - 1 for own in edges])  # a wait for a GPU
        return [
            divided(self.elements_at(step, given.size), of_parts.numpy(), np.diff(own))
            for given, of_parts, own in zip(inputs, norms, edges, strict=True)
        ]


def parts_of(shapes: Shapes, number: int) -> np.ndarray:
    """Boundaries of the parts of a segment with these layers: 0, ..., d; no part is empty."""
    sizes = [math.prod(shape) for shape in shapes]
    edges, begin = [0], 0
    for size in sizes:
        pieces = number if size * number > sum(sizes) else 1
        edges += [begin + size * (piece + 1) // pieces for piece in range(pieces)]
        begin += size
    return np.unique(np.array(edges, dtype=np.int64))


def divided(k: int, norms: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The number of elements of each part, int64; parts that are not finite come first."""
    if not np.isfinite(norms).all():
        norms = np.where(np.isfinite(norms), 0.0, 1.0)
    order = np.argsort(-norms, kind="stable").tolist()
    counts, left, rest = np.zeros(len(norms), dtype=np.int64), k, float(norms[order].sum())
    for part in order:
        share = int(left * (norms[part] / rest)) if rest > 0 else 0
        counts[part] = min(sizes[part], max(1, share))
        left -= int(counts[part])
        rest -= norms[part]
    for part in order:
        more = int(min(max(0, left), sizes[part] - counts[part]))
        counts[part] += more
        left -= more
    return counts


def packed_into(number: int, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The bin of each part: the most expensive part first, into the emptiest of ``number`` bins."""
    costs = sizes * np.log2(np.maximum(2, counts))
    bins = np.zeros(len(costs), dtype=np.int64)
    loads = [(0.0, own) for own in range(number)]  # a heap: the emptiest bin first, then the lowest
    for part in np.argsort(-costs, kind="stable").tolist():
        load, own = heapq.heappop(loads)
        bins[part] = own
        heapq.heappush(loads, (load + costs[part], own))
    return bins


def _largest(
    given: Input, row: int, edges: np.ndarray, parts: np.ndarray, counts: np.ndarray, step: Step
) -> Tensor:
    """Positions [.] int64 of the largest magnitudes of a worker's parts."""
    found = [torch.empty(0, dtype=torch.int64, device=given.rows.device)]
    for part in parts.tolist():
        begin, end = int(edges[part]), int(edges[part + 1])
        top_k = TopK(density=int(counts[part]) / (end - begin))
        found.append(top_k.encode(vector(given, row, begin, end), step).indices.long() + begin)
    return torch.cat(found)
