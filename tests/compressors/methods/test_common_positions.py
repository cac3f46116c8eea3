"""CLT-k, DEFT and MiCRO against NumPy: means of all workers at positions that one worker has chosen."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from methods import communicator_for

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.clt_k import CLTK
from compressors.deft import DEFT
from compressors.feedback import ErrorFeedback
from compressors.micro import MiCRO

SHAPES = ((30, 20), (30,), (7, 3, 3, 3), (5,), (100, 2))
SIZES = [math.prod(shape) for shape in SHAPES]
SIZE, DENSITY, RATE = sum(SIZES), 0.1, 0.2
K = int(DENSITY * SIZE)
# From p [n, d] and the step: the positions that each worker sends, and its bytes of metadata
Definition = Callable[[np.ndarray, int], tuple[list[list[int]], list[int]]]


def largest(x: np.ndarray, k: int) -> list[int]:
    return np.argsort(-np.abs(x), kind="stable")[:k].tolist()


def clt_k(p: np.ndarray, step: int) -> tuple[list[list[int]], list[int]]:
    """The leader, another worker in each step, sends the positions of its k largest entries."""
    leader = step % len(p)
    return [largest(row, K) if worker == leader else [] for worker, row in enumerate(p)], [0] * len(p)


def parts(workers: int) -> list[tuple[int, int]]:
    """Begin and end of each part: layers of more than d / n elements are split into n parts."""
    found, begin = [], 0
    for size in SIZES:
        pieces = workers if size > SIZE / workers else 1
        found += [(begin + size * i // pieces, begin + size * (i + 1) // pieces) for i in range(pieces)]
        begin += size
    return found


def numbers(p: np.ndarray, own: list[tuple[int, int]]) -> list[int]:
    """The k of each part, by its norm."""
    norms = [float(np.linalg.norm(p[a:b].astype(np.float64))) for a, b in own]
    order = sorted(range(len(norms)), key=lambda part: -norms[part])
    found, left, rest = [0] * len(norms), K, sum(norms)
    for part in order:
        a, b = own[part]
        found[part] = min(b - a, max(1, int(left * norms[part] / rest)))
        left -= found[part]
        rest -= norms[part]
    for part in order:
        a, b = own[part]
        more = min(max(left, 0), b - a - found[part])
        found[part] += more
        left -= more
    return found


def packed(counts: list[int], own: list[tuple[int, int]], workers: int) -> list[int]:
    """The bin of each part, so that bins have about equal costs."""
    costs = [(b - a) * math.log2(max(2, count)) for (a, b), count in zip(own, counts, strict=True)]
    loads, found = [0.0] * workers, [0] * len(costs)
    for part in sorted(range(len(costs)), key=lambda part: -costs[part]):
        found[part] = loads.index(min(loads))
        loads[found[part]] += costs[part]
    return found


def deft(p: np.ndarray, step: int) -> tuple[list[list[int]], list[int]]:
    """Each worker chooses in the parts of its bin; the leader, another one in each step, packs the bins."""
    workers, leader = len(p), step % len(p)
    own = parts(workers)
    bins = packed(numbers(p[leader], own), own, workers)
    chosen: list[list[int]] = [[] for _ in p]
    for worker, row in enumerate(p):
        for count, part, (a, b) in zip(numbers(row, own), bins, own, strict=True):
            if part == (worker + step) % workers:
                chosen[worker] += [a + place for place in largest(row[a:b], count)]
    return chosen, [4 + 4 * len(own) * (worker == leader) for worker in range(workers)]


def micro() -> Definition:
    """Each worker chooses by a threshold in its share, another one in each step; the threshold follows k."""
    threshold = 1 / (2 * math.sqrt(K))

    def define(p: np.ndarray, step: int) -> tuple[list[list[int]], list[int]]:
        nonlocal threshold
        workers = len(p)
        edges, chosen = [SIZE * part // workers for part in range(workers + 1)], []
        for worker, row in enumerate(p):
            part = (worker + step) % workers
            chosen.append([i for i in range(edges[part], edges[part + 1]) if abs(row[i]) >= threshold])
        ratio = sum(map(len, chosen)) / K
        change = RATE / 4 if 1 / 1.1 <= ratio <= 1.1 else RATE
        threshold *= 1 + change if ratio > 1 else 1 - change
        return chosen, [4] * workers

    return define


METHODS = {
    "clt_k": (CLTK(density=DENSITY), lambda: clt_k, 1.0),
    "clt_k with low-pass feedback": (CLTK(density=DENSITY), lambda: clt_k, 0.1),
    "deft": (DEFT(density=DENSITY), lambda: deft, 1.0),
    "micro": (MiCRO(density=DENSITY, rate=RATE), micro, 1.0),
}


@pytest.mark.parametrize("workers", [1, 3, 4])
@pytest.mark.parametrize("name", METHODS)
def test_definition(name: str, workers: int) -> None:
    """Means, residuals and bytes; the residual is (1 - beta) e + beta (p - C(p))."""
    method, make, beta = METHODS[name]
    define: Any = make()
    reducer, state = build_reducer(method, SIZE, partial(ErrorFeedback, beta=beta)), None
    communicator, memory = communicator_for(reducer, workers), np.zeros((workers, SIZE), dtype=np.float32)
    scale = torch.cat([torch.full((size,), 2.0**-i) for i, size in enumerate(SIZES)])
    for step in range(9):
        g = scale * torch.randn(workers, SIZE, generator=torch.Generator().manual_seed(step))
        p = memory + g.numpy()
        chosen, metadata = define(p, step)
        where = sorted(set().union(*chosen))
        assert len(where) == sum(map(len, chosen)), "no position is chosen twice"
        sent = np.zeros_like(p)
        sent[:, where] = p[:, where]
        memory = (1 - beta) * memory + beta * (p - sent)
        segments = [Segment("a", g, SHAPES)]
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step), communicator)
        np.testing.assert_allclose(reduced.mean["a"].numpy(), sent.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state.residual["a"].numpy(), memory, rtol=1e-5, atol=1e-6)
        charged = communicator.take_charges()
        assert charged[:, 0].tolist() == [4 * len(where)] * workers  # values
        assert charged[:, 1].tolist() == [4 * len(own) for own in chosen]  # positions
        assert charged[:, 3].tolist() == metadata
