"""MiCRO against its definition in NumPy: shares, means, residuals and thresholds over several steps."""

import math

import numpy as np
import pytest
import torch
from methods import reduce_once

from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.micro import MiCRO
from contract.cases import communicator_for

SIZE, WORKERS = 1003, 4


def drawn(step: int) -> torch.Tensor:
    return torch.randn(WORKERS, SIZE, generator=torch.Generator().manual_seed(step)) * 0.02


def scaled(threshold: float, sent: int, k: int, rate: float = 0.005) -> float:
    ratio = sent / k
    if ratio > 1.1:
        return threshold * (1 + rate)
    if ratio < 1 / 1.1:
        return threshold * (1 - rate)
    return threshold * (1 + rate / 4 if ratio > 1 else 1 - rate / 4)


def test_definition() -> None:
    """Chosen positions, means, residuals, bytes and thresholds of every step."""
    reducer, state = build_reducer(MiCRO(density=0.1), SIZE, ErrorFeedback), None
    communicator = communicator_for(reducer, WORKERS)
    k, residual = 100, np.zeros((WORKERS, SIZE), dtype=np.float32)
    threshold, edges = 1 / (2 * math.sqrt(k)), [SIZE * part // WORKERS for part in range(WORKERS + 1)]
    for step in range(6):
        g = drawn(step)
        p = residual + g.numpy()
        chosen = [set[int]() for _ in range(WORKERS)]
        for worker in range(WORKERS):
            part = (worker + step) % WORKERS
            inside = range(edges[part], edges[part + 1])
            chosen[worker] = {i for i in inside if abs(p[worker, i]) >= threshold}
        everywhere = sorted(set.union(*chosen))
        assert len(everywhere) == sum(map(len, chosen)), "no position is chosen twice"
        reduced, state, _ = reduce_once(reducer, g, state, step, communicator=communicator)
        expected = np.zeros(SIZE, dtype=np.float32)
        expected[everywhere] = p[:, everywhere].mean(0)
        np.testing.assert_allclose(reduced.mean["a"], expected, rtol=1e-6, atol=1e-7)
        residual = p.copy()
        residual[:, everywhere] = 0
        np.testing.assert_array_equal(reduced.residual["a"], residual)
        charged = communicator.take_charges()
        assert charged[:, 0].tolist() == [4 * len(everywhere)] * WORKERS  # values
        assert charged[:, 1].tolist() == [4 * len(positions) for positions in chosen]
        assert charged[:, 3].tolist() == [4] * WORKERS  # a count
        kept = state.inner.by_segment.state["a"]
        assert kept[0].item() == pytest.approx(threshold, rel=1e-12)
        threshold = scaled(threshold, len(everywhere), k)


def test_threshold_follows_the_density() -> None:
    """From a threshold of 1.5 times the quantile, the mean number sent comes within 10 % of k."""
    reducer, state = build_reducer(MiCRO(density=0.1, rate=0.05), SIZE), None
    sent = []
    for step in range(80):
        reduced, state, _ = reduce_once(reducer, drawn(step), state, step)
        sent.append(int(reduced.compressed["a"].counts[0]))
    assert sent[0] < 50
    assert 90 < np.mean(sent[40:]) < 110
