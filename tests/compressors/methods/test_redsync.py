"""RedSync against its definition in NumPy."""

import numpy as np
import pytest
import torch
from methods import reduce_once

from compressors.build import build_reducer
from compressors.redsync import RedSync

SIZE, WORKERS = 30_000, 2


def binary(p: np.ndarray, k: int, tolerance: float) -> float:
    """The threshold of threshold binary search selection."""
    x = np.abs(p.astype(np.float64))
    low, high, threshold = 0.0, 1.0, 0.0
    while high - low > tolerance:
        ratio = low + (high - low) / 2
        threshold = x.mean() + ratio * (x.max() - x.mean())
        reached = (x >= threshold).sum()
        if k < reached < 2 * k:
            break
        if reached < k / 2:
            high = ratio
        else:
            low = ratio
    return threshold


def trimmed(p: np.ndarray, k: int) -> np.ndarray:
    """The positions of trimmed top-k selection."""
    x = np.abs(p)
    ratio, candidates = 0.8, np.arange(0)
    while len(candidates) < k:
        candidates = np.flatnonzero(x >= x.mean() + ratio * (x.max() - x.mean()))
        ratio -= 0.2
    return np.sort(candidates[np.argsort(-x[candidates])[:k]])


def drawn(power: int) -> torch.Tensor:
    x = torch.randn(WORKERS, SIZE, generator=torch.Generator().manual_seed(0))
    return x.abs() ** power * x.sign()


@pytest.mark.parametrize("power", [1, 2, 5])
@pytest.mark.parametrize("density", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("tolerance", [0.2, 0.001])
def test_binary_search(power: int, density: float, tolerance: float) -> None:
    g, k = drawn(power), int(density * SIZE)
    reduced, _, _ = reduce_once(build_reducer(RedSync(density=density, tolerance=tolerance), SIZE), g)
    for row, rest in zip(g.numpy(), reduced.residual["a"].numpy(), strict=True):
        threshold, magnitudes = binary(row, k, tolerance), np.abs(row)
        clear = np.abs(magnitudes - threshold) > 1e-5 * threshold  # not equal up to rounding
        np.testing.assert_array_equal((rest == 0)[clear], (magnitudes >= threshold)[clear])


@pytest.mark.parametrize("power", [1, 5])
@pytest.mark.parametrize("density", [0.3, 0.01])
def test_trimmed_top_k(power: int, density: float) -> None:
    g, k = drawn(power), int(density * SIZE)
    reduced, _, _ = reduce_once(build_reducer(RedSync(density=density, search="trimmed"), SIZE), g)
    for row, rest in zip(g.numpy(), reduced.residual["a"].numpy(), strict=True):
        np.testing.assert_array_equal(np.flatnonzero(rest == 0), trimmed(row, k))


def test_equal_magnitudes_end_the_search() -> None:
    """The mean equals the largest magnitude, so every threshold equals it and all entries are sent."""
    g = torch.full((2, 100), -3.0)
    reduced, _, _ = reduce_once(build_reducer(RedSync(density=0.1), 100), g)
    assert reduced.compressed["a"].counts.tolist() == [100, 100]
