"""Gaussian-k, RedSync and SIDCo against NumPy: thresholds that are estimated instead of sorted."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from methods import reduce_once
from scipy.special import gammainccinv

from compressors.build import build_reducer
from compressors.gaussian_k import GaussianK
from compressors.redsync import RedSync
from compressors.sidco import SIDCo, upper_gamma_inverse
from contract.cases import communicator_for

SIZE, WORKERS = 30_000, 2


def drawn(power: float, seed: int = 0, mean: float = 0.0) -> torch.Tensor:
    """Normal entries (``power`` 1), or those with lighter (below 1) or heavier tails."""
    x = torch.randn(WORKERS, SIZE, generator=torch.Generator().manual_seed(seed))
    return x.abs() ** power * x.sign() + mean


def require_sent_from(threshold: float, row: torch.Tensor, left: torch.Tensor) -> None:
    """Assert that exactly the magnitudes from ``threshold`` on are sent, but for rounding of it."""
    magnitudes = row.abs().numpy()
    clear = np.abs(magnitudes - threshold) > 1e-5 * threshold
    np.testing.assert_array_equal((left.numpy() == 0)[clear], (magnitudes >= threshold)[clear])


def gaussian(p: np.ndarray, k: int) -> float:
    """The last threshold that the authors' code counts: it counts three times."""
    threshold, last = p.mean() - NormalDist().inv_cdf(k / len(p) / 2) * p.std(), math.nan
    for _ in range(3):
        last, reached = threshold, (np.abs(p) > threshold).sum()
        if reached < 2 * k / 3:
            threshold *= 0.5
        elif reached > 4 * k / 3:
            threshold *= 1.5
        else:
            break
    return last


@pytest.mark.parametrize("power", [0.5, 1, 2, 5])
@pytest.mark.parametrize("density", [0.1, 0.01, 0.001])
def test_gaussian_k(power: float, density: float) -> None:
    g = drawn(power, mean=0.01)
    reduced, _, _ = reduce_once(build_reducer(GaussianK(density=density), SIZE), g)
    for row, left in zip(g, reduced.residual["a"], strict=True):
        require_sent_from(gaussian(row.double().numpy(), int(density * SIZE)), row, left)


def test_gaussian_k_sends_as_many_as_the_authors_code() -> None:
    """60 steps of normal gradients: the authors' code sends 4.52 k on average, 0.17 k with a third change."""
    generator, residual, sent = torch.Generator().manual_seed(1), torch.zeros(1, 10_000), []
    for _ in range(60):
        residual += torch.randn(1, 10_000, generator=generator)
        reduced, _, _ = reduce_once(build_reducer(GaussianK(density=0.01), 10_000), residual)
        residual = reduced.residual["a"]
        sent.append(int(reduced.compressed["a"].counts.sum()) / 100)
    assert np.mean(sent) == pytest.approx(4.52, abs=0.02)


def binary(p: np.ndarray, k: int, tolerance: float) -> float:
    """The threshold of threshold binary search selection."""
    x = np.abs(p)
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


@pytest.mark.parametrize("power", [1, 2, 5])
@pytest.mark.parametrize("density", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("tolerance", [0.2, 0.001])
def test_redsyncs_binary_search(power: int, density: float, tolerance: float) -> None:
    g = drawn(power)
    reduced, _, _ = reduce_once(build_reducer(RedSync(density=density, tolerance=tolerance), SIZE), g)
    for row, left in zip(g, reduced.residual["a"], strict=True):
        require_sent_from(binary(row.double().numpy(), int(density * SIZE), tolerance), row, left)


@pytest.mark.parametrize("power", [1, 5])
@pytest.mark.parametrize("density", [0.3, 0.01])
def test_redsyncs_trimmed_top_k(power: int, density: float) -> None:
    g, k = drawn(power), int(density * SIZE)
    reduced, _, _ = reduce_once(build_reducer(RedSync(density=density, search="trimmed"), SIZE), g)
    for row, left in zip(g.abs().numpy(), reduced.residual["a"], strict=True):
        ratio, candidates = 0.8, np.arange(0)
        while len(candidates) < k:
            candidates = np.flatnonzero(row >= row.mean() + ratio * (row.max() - row.mean()))
            ratio -= 0.2
        expected = np.sort(candidates[np.argsort(-row[candidates])[:k]])
        np.testing.assert_array_equal(np.flatnonzero(left == 0), expected)


def test_equal_magnitudes_end_redsyncs_search() -> None:
    """The mean equals the largest magnitude, so every threshold equals it and all entries are sent."""
    reduced, _, _ = reduce_once(build_reducer(RedSync(density=0.1), 100), torch.full((2, 100), -3.0))
    assert reduced.compressed["a"].counts.tolist() == [100, 100]


def quantile(x: np.ndarray, share: float, kind: str) -> float:
    """The value that a ``share`` of the distribution fitted to ``x`` exceeds (corollaries 1.1 to 1.3)."""
    mean = x.mean()
    if kind == "exponential":
        return -mean * math.log(share)
    if kind == "pareto":
        ratio = mean**2 / x.var()
        shape, scale = (1 - ratio) / 2, mean * (1 + ratio) / 2
        return scale / shape * (math.exp(-shape * math.log(share)) - 1)
    s = math.log(mean) - np.log(x).mean()
    alpha = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    if kind == "gamma":
        return mean / alpha * gammainccinv(alpha, share)
    return -mean / alpha * (math.log(share) + math.lgamma(alpha))


def staged(p: np.ndarray, k: int, stages: int, kinds: tuple[str, str]) -> float:
    """SIDCo's threshold after some stages (corollary 2.1)."""
    x, share = np.abs(p), k / len(p)
    if stages == 1:
        return quantile(x, share, kinds[0])
    threshold = quantile(x, 0.25, kinds[0])
    for _ in range(stages - 1):
        exceeding = x[x >= threshold] - threshold
        threshold += quantile(exceeding, (share / 0.25) ** (1 / (stages - 1)), kinds[1])
    return threshold


@pytest.mark.parametrize(
    ("distribution", "kinds"),
    [
        ("exponential", ("exponential", "exponential")),
        ("pareto", ("pareto", "pareto")),
        ("gamma_pareto", ("gamma", "pareto")),
        ("gamma_pareto", ("gamma approximate", "pareto")),
    ],
)
@pytest.mark.parametrize("power", [1, 3])
def test_sidco(distribution: str, kinds: tuple[str, str], power: float) -> None:
    """Thresholds and stages over several periods of one step."""
    k, most, state = int(0.01 * SIZE), math.ceil(math.log2(100)), None
    gamma = "approximate" if "approximate" in kinds[0] else "exact"
    codec = SIDCo(density=0.01, distribution=distribution, gamma_quantile=gamma, period=1)
    reducer, stages = build_reducer(codec, SIZE), [1] * WORKERS
    communicator = communicator_for(reducer, WORKERS)
    for step in range(5):
        g = drawn(power, step)
        reduced, state, _ = reduce_once(reducer, g, state, step, communicator=communicator)
        for worker, (row, left) in enumerate(zip(g, reduced.residual["a"], strict=True)):
            require_sent_from(staged(row.double().numpy(), k, stages[worker], kinds), row, left)
            sent = (left == 0).sum().item()
            stages[worker] = min(most, max(1, stages[worker] - (sent > 1.2 * k) + (sent < 0.8 * k)))
        assert state.by_segment["a"][:, 0].tolist() == stages


@pytest.mark.parametrize("alpha", [0.026, 0.5, 1, 1e3, 5e8])
@pytest.mark.parametrize("share", [0.9, 0.25, 1e-5])
def test_quantile_of_gamma_distributions(alpha: float, share: float) -> None:
    found = upper_gamma_inverse(np.array([alpha]), np.array([share]))
    assert found == pytest.approx(gammainccinv(alpha, share), rel=1e-10)


@pytest.mark.parametrize("density", [0.1, 0.01, 0.001])
def test_sidcos_achieved_density(density: float) -> None:
    """With adapted stages the number sent of normal entries is within the paper's 20 % of k on average."""
    reducer, state = build_reducer(SIDCo(density=density, period=1), SIZE), None
    ratios = []
    for step in range(16):
        reduced, state, _ = reduce_once(reducer, drawn(1, step), state, step)
        ratios.append(reduced.compressed["a"].counts.mean() / (density * SIZE))
    assert 0.8 < np.mean(ratios[-8:]) < 1.2, ratios


@pytest.mark.parametrize("mean", [1.5, 2.5])
def test_a_mean_of_stages_is_rounded(mean: float) -> None:
    """Of the old workers of a run that goes on with another number of workers."""
    residuals = []
    for stages in (2, mean):
        reducer = build_reducer(SIDCo(density=0.01), SIZE)
        _, state, _ = reduce_once(reducer, drawn(1, 0))
        state.by_segment["a"][:, 0] = stages
        reduced, _, _ = reduce_once(reducer, drawn(1, 1), state, 1)
        residuals.append(reduced.residual["a"])
    assert torch.equal(*residuals)
