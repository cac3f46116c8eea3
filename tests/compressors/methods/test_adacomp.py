"""AdaComp against its definition in NumPy, over several steps, and its bytes."""

import math

import numpy as np
import torch

from compressors.adacomp import AdaComp
from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from contract.cases import communicator_for

SHAPES = ((8, 3, 5, 5), (30, 20), (30,), (700, 2), (1,))
SIZES = [math.prod(shape) for shape in SHAPES]
BINS = [50 if len(shape) == 4 else 500 for shape in SHAPES]
SIZE, WORKERS = sum(SIZES), 3


def definition(e: np.ndarray, g: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Sent values of one layer, and a mask of their positions (the pack function of the paper)."""
    p, h = e + g, e + 2 * g
    bins = [p[start : start + length] for start in range(0, len(p), length)]
    largest = np.array([np.abs(own).max() for own in bins], dtype=np.float64)
    is_sent = (np.abs(h) >= np.repeat(largest, length)[: len(p)]) & (p != 0)
    return np.where(is_sent, np.sign(p) * np.float32(largest.mean()), 0).astype(np.float32), is_sent


def test_definition() -> None:
    """Sums and differences of multiples of 2^-10 are exact, so that comparisons do not depend on rounding."""
    reducer, state = build_reducer(AdaComp(), SIZE, ErrorFeedback), None
    communicator, residual = communicator_for(reducer, WORKERS), np.zeros((WORKERS, SIZE), dtype=np.float32)
    edges = np.cumsum(SIZES)[:-1]
    for step in range(4):
        g = torch.randn(WORKERS, SIZE, generator=torch.Generator().manual_seed(step))
        g[:, :100] = 0  # two bins
        g = (1024 * g).round() / 1024
        sent, marks, positions = np.zeros((WORKERS, SIZE), dtype=np.float32), [], []
        for worker in range(WORKERS):
            layers = zip(
                np.split(residual[worker], edges), np.split(g[worker].numpy(), edges), BINS, strict=True
            )
            found = [definition(*own) for own in layers]
            sent[worker] = np.concatenate([values for values, _ in found])
            marks.append([int(where.sum()) for _, where in found])
            positions += np.flatnonzero(np.concatenate([where for _, where in found])).tolist()
        segments = [Segment("a", g.clone(), SHAPES)]
        state = reducer.init(segments) if state is None else state
        p = residual + g.numpy()
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step), communicator)
        assert reduced.compressed["a"].sent.tolist() == marks
        assert reduced.compressed["a"].positions(SIZE).tolist() == positions
        np.testing.assert_allclose(reduced.mean["a"], sent.mean(0), rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(reduced.residual["a"], p - sent)
        residual = reduced.residual["a"].numpy().copy()
        assert communicator.take_largest_sent() == math.inf, "workers know the bytes of the others alone"
        charged = communicator.take_charges()
        codes = communicator.kinds.index("codes")
        assert charged[:, codes].tolist() == [own[0] + 2 * sum(own[1:]) for own in marks]
        bins = [math.ceil(size / length) for size, length in zip(SIZES, BINS, strict=True)]
        assert charged[:, 3].tolist() == [4 + 4 * len(SIZES) + bins[0] + 2 * sum(bins[1:])] * WORKERS
