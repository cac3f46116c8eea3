"""SIDCo against its definition in NumPy, and the density achieved against the density that is set."""

import math

import numpy as np
import pytest
import torch
from methods import reduce_once
from scipy.special import gammainccinv

from compressors.build import build_reducer
from compressors.sidco import SIDCo, upper_gamma_inverse
from contract.cases import communicator_for

SIZE, WORKERS = 40_000, 2


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


def definition(p: np.ndarray, k: int, stages: int, kinds: tuple[str, str]) -> float:
    """The threshold after some stages (corollary 2.1)."""
    x, share = np.abs(p.astype(np.float64)), k / len(p)
    if stages == 1:
        return quantile(x, share, kinds[0])
    threshold = quantile(x, 0.25, kinds[0])
    for _ in range(stages - 1):
        exceeding = x[x >= threshold] - threshold
        threshold += quantile(exceeding, (share / 0.25) ** (1 / (stages - 1)), kinds[1])
    return threshold


def adapted(stages: int, sent: float, k: int) -> int:
    """The stages after a period in which ``sent`` elements were sent in the mean."""
    most = math.ceil(math.log2(SIZE / k))
    return min(most, max(1, stages - (sent > 1.2 * k) + (sent < 0.8 * k)))


def drawn(power: float, seed: int = 0) -> torch.Tensor:
    x = torch.randn(WORKERS, SIZE, generator=torch.Generator().manual_seed(seed))
    return x.abs() ** power * x.sign()


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
def test_definition(distribution: str, kinds: tuple[str, str], power: float) -> None:
    """Thresholds and stages over several periods of one step."""
    density, number, state = 0.01, int(0.01 * SIZE), None
    gamma = "approximate" if "approximate" in kinds[0] else "exact"
    codec = SIDCo(density=density, distribution=distribution, gamma_quantile=gamma, period=1)
    reducer = build_reducer(codec, SIZE)
    communicator, expected = communicator_for(reducer, WORKERS), [1] * WORKERS
    for step in range(5):
        g = drawn(power, step)
        reduced, state, _ = reduce_once(reducer, g, state, step, communicator=communicator)
        sent = reduced.residual["a"].numpy() == 0
        for worker, row in enumerate(g.numpy()):
            threshold, magnitudes = definition(row, number, expected[worker], kinds), np.abs(row)
            clear = np.abs(magnitudes - threshold) > 1e-5 * threshold  # not equal up to rounding
            np.testing.assert_array_equal(sent[worker][clear], (magnitudes >= threshold)[clear])
        expected = [
            adapted(stages, count, number)
            for stages, count in zip(expected, sent.sum(1).tolist(), strict=True)
        ]
        assert state.by_segment["a"][:, 0].tolist() == expected


@pytest.mark.parametrize("alpha", [0.026, 0.5, 1, 1e3, 5e8])
@pytest.mark.parametrize("share", [0.9, 0.25, 1e-5])
def test_quantile_of_gamma_distributions(alpha: float, share: float) -> None:
    found = upper_gamma_inverse(np.array([alpha]), np.array([share]))
    assert found == pytest.approx(gammainccinv(alpha, share), rel=1e-10)


@pytest.mark.parametrize("density", [0.1, 0.01, 0.001])
def test_achieved_density(density: float) -> None:
    """With adapted stages the number sent of normal entries is within the paper's 20 % of k on average."""
    reducer, state = build_reducer(SIDCo(density=density, period=1), SIZE), None
    ratios = []
    for step in range(16):
        reduced, state, _ = reduce_once(reducer, drawn(1, step), state, step)
        ratios.append(reduced.compressed["a"].counts.mean() / (density * SIZE))
    assert 0.8 < np.mean(ratios[-8:]) < 1.2, ratios
