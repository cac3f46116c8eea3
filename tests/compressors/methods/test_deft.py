"""DEFT against its definition in NumPy: parts, their k and worker, means and residuals over several steps."""

import math

import numpy as np
import torch

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.deft import DEFT
from compressors.feedback import ErrorFeedback
from contract.cases import communicator_for

SHAPES = ((30, 20), (30,), (7, 3, 3, 3), (5,), (100, 2))
SIZES = [math.prod(shape) for shape in SHAPES]
SIZE, WORKERS = sum(SIZES), 3


def drawn(step: int) -> torch.Tensor:
    g = torch.randn(WORKERS, SIZE, generator=torch.Generator().manual_seed(step))
    scale = torch.cat([torch.full((size,), 2.0**-i) for i, size in enumerate(SIZES)])
    return g * scale


def parts() -> list[tuple[int, int]]:
    """Begin and end of each part: layers of more than d / n elements are split into n parts."""
    found, begin = [], 0
    for size in SIZES:
        pieces = WORKERS if size > SIZE / WORKERS else 1
        found += [(begin + size * i // pieces, begin + size * (i + 1) // pieces) for i in range(pieces)]
        begin += size
    return found


def numbers(p: np.ndarray, k: int) -> list[int]:
    norms = [float(np.linalg.norm(p[a:b].astype(np.float64))) for a, b in parts()]
    order = sorted(range(len(norms)), key=lambda part: -norms[part])
    found, left, rest = [0] * len(norms), k, sum(norms)
    for part in order:
        a, b = parts()[part]
        found[part] = min(b - a, max(1, int(left * norms[part] / rest)))
        left -= found[part]
        rest -= norms[part]
    for part in order:
        a, b = parts()[part]
        more = min(max(left, 0), b - a - found[part])
        found[part] += more
        left -= more
    return found


def packed(counts: list[int]) -> list[int]:
    costs = [(b - a) * math.log2(max(2, count)) for (a, b), count in zip(parts(), counts, strict=True)]
    loads, found = [0.0] * WORKERS, [0] * len(costs)
    for part in sorted(range(len(costs)), key=lambda part: -costs[part]):
        found[part] = loads.index(min(loads))
        loads[found[part]] += costs[part]
    return found


def test_definition() -> None:
    reducer, state, k = build_reducer(DEFT(density=0.1), SIZE, ErrorFeedback), None, int(0.1 * SIZE)
    communicator, residual = communicator_for(reducer, WORKERS), np.zeros((WORKERS, SIZE), dtype=np.float32)
    for step in range(5):
        g = drawn(step)
        p = residual + g.numpy()
        leader, where = step % WORKERS, []
        bins = packed(numbers(p[leader], k))
        for worker in range(WORKERS):
            counts = numbers(p[worker], k)
            for part, (a, b) in enumerate(parts()):
                if bins[part] == (worker + step) % WORKERS:
                    where += (a + np.argsort(-np.abs(p[worker, a:b]))[: counts[part]]).tolist()
        where.sort()
        assert len(where) == len(set(where)), "no position is chosen twice"
        segments = [Segment("a", g.clone(), SHAPES)]
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step), communicator)
        expected = np.zeros(SIZE, dtype=np.float32)
        expected[where] = p[:, where].mean(0)
        np.testing.assert_allclose(reduced.mean["a"], expected, rtol=1e-6, atol=1e-7)
        residual = p.copy()
        residual[:, where] = 0
        np.testing.assert_array_equal(reduced.residual["a"], residual)
        assert abs(len(where) - k) < 0.5 * k
        told = [4 * len(parts()) * (worker == leader) for worker in range(WORKERS)]
        charged = communicator.take_charges()
        assert charged[:, 0].tolist() == [4 * len(where)] * WORKERS  # values
        assert charged[:, 1].sum() == 4 * len(where)  # each position once
        assert charged[:, 3].tolist() == [4 + bytes_told for bytes_told in told]
