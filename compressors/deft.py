"""DEFT: every worker chooses the largest magnitudes of its layers, for all workers.

Yoon and Oh, 2023, https://arxiv.org/abs/2307.03500. The steps are:

1. A layer of more than d / n elements is split into n parts.
2. Worker i divides k = max(1, floor(density * d)) among the parts in proportion to the norms of its p, the
   part with the largest norm first. A part gets the remaining number times its norm over the sum of the
   remaining norms, at least 1 and at most its size. The elements left go to the parts of largest norms.
3. A leader, worker t mod n in step t, packs the parts into n bins of similar cost and broadcasts the packing.
   The cost of a part is its size times log2 of its number of elements in the leader's step 2. Parts are
   packed in order of decreasing cost, each into the emptiest bin.
4. In each part of bin (i + t) mod n, worker i chooses the largest magnitudes, as many as step 2 gave it.
5. The chosen positions are gathered, and all workers send their values at these positions.

Biased; sends about k elements. Per element: 4 bytes for an fp32 value from every worker, all-reduced, and a
4-byte index from the worker that chose it; a 4-byte count per segment and worker, and 4 bytes per part from
the leader. The method is meant for ``scope=global``: with ``scope=layer`` a segment has one layer. Deviations
from the authors' code (https://github.com/kljp/deft): a part that the leader would send whole is in no bin
there, and all workers send its values without indices; here it is in a bin and its positions are gathered.
The elements left in step 2 are not sent there.
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
    Segment,
    Sparse,
    State,
    Step,
    Traits,
    backend_of,
    squared_norm,
)
from compressors.core.segments import Shapes
from compressors.parts.exclusive import choose_everywhere
from compressors.parts.searches import narrowed


@dataclass(frozen=True, kw_only=True)
class DEFT(CodecWithDensity):
    """Sends all workers' entries at the positions that one worker chooses in each part of a segment.

    A higher density sends more and keeps a smaller residual; ``schedule`` varies it over the epochs. Raises
    ``ValueError`` for a density outside (0, 1].
    """

    payload = Sparse
    traits = Traits(linear=True, seeded=True, lossless_at={"density": 1.0, "schedule": "constant"})
    examples = ({"density": 0.1},)
    waits = ("2", "2 + G", "")

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()

    def choose(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], State]:
        number, workers = communicator.size, communicator.local_workers
        edges = [parts_of(given.segment.shapes, number) for given in inputs]
        numbers = self._numbers(inputs, edges, step)
        leader = step.exchange % number
        bins = torch.zeros(sum(len(own) - 1 for own in edges), dtype=torch.int32)
        if leader in workers:
            of_leader = zip(edges, (own[workers.index(leader)] for own in numbers), strict=True)
            packed = [packed_into(number, np.diff(own), counts) for own, counts in of_leader]
            bins = torch.from_numpy(np.concatenate(packed).astype(np.int32))
        bins = communicator.broadcast_from(leader, bins, "metadata")
        split = bins.split([len(own) - 1 for own in edges])
        parts, counts, begins, owners = [], [], [], []
        for segment, (given, own, of_parts) in enumerate(zip(inputs, edges, split, strict=True)):
            for row, worker in enumerate(workers):
                for part in np.flatnonzero(of_parts.numpy() == (worker + step.exchange) % number).tolist():
                    begin, end = own[part : part + 2].tolist()
                    parts.append(narrowed(given, row, begin, end))
                    counts.append(int(numbers[segment][row][part]))
                    begins.append(begin)
                    owners.append((segment, row))
        nothing = torch.empty(0, dtype=torch.int64, device=inputs[0].rows.device)
        positions = [[[nothing] for _ in workers] for _ in inputs]
        chosen = backend_of(inputs[0].rows.device).search_largest(parts, counts) if parts else []
        for (segment, row), where, begin in zip(owners, chosen, begins, strict=True):
            positions[segment][row].append(where + begin)
        joined = [[torch.cat(found) for found in of_workers] for of_workers in positions]
        return choose_everywhere(inputs, joined, communicator)[0], state

    def _numbers(self, inputs: list[Input], edges: list[np.ndarray], step: Step) -> list[list[np.ndarray]]:
        """Per segment and local worker how many elements that worker would choose in each part."""
        found = []
        for given, own in zip(inputs, edges, strict=True):
            shapes = tuple((size,) for size in np.diff(own).tolist())
            found.append(given._replace(segment=Segment(f"{given.name}/parts", given.segment.rows, shapes)))
        norms = backend_of(inputs[0].rows.device).norms_of(found)
        arrived = (
            torch.cat(norms, 1).sqrt_().cpu().split([len(own) - 1 for own in edges], 1)
        )  # a wait for a GPU
        return [
            [divided(self.elements_at(step, given.size), row, np.diff(own)) for row in of_parts.numpy()]
            for given, of_parts, own in zip(inputs, arrived, edges, strict=True)
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
    """The number of elements of each part, int64; parts with a norm that is not finite come first."""
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
