"""gTop-k against its definition, with its volume, its communication rounds, and conservation."""

import numpy as np
import pytest
import torch
from methods import segment

from compressors.api import Step, inputs_of
from compressors.gtop_k import GTopK
from trainers.comm.communicator import Communicator
from trainers.diagnostics.bound import Bound
from trainers.diagnostics.gap import Gap
from trainers.diagnostics.probe import Probe
from trainers.diagnostics.settings import Diagnostics

D, K = 60, 6


def top(x: np.ndarray, k: int) -> np.ndarray:
    """Mask of the k largest magnitudes of ``x``, ties to the lowest position."""
    kept = np.zeros(len(x), dtype=bool)
    kept[np.argsort(-np.abs(x), kind="stable")[:k]] = True
    return kept


def defined(p: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean [d] and the residuals [n, d] of gTop-k for p [n, d]; groups are ranges of workers."""
    n = len(p)
    arrives = np.stack([top(row, k) for row in p])  # [n, d], mask of entries that are still part of a sum
    halves = {(0, n)}
    levels = []
    while any(b - a > 1 for a, b in halves):
        levels.append(halves)
        halves = {
            part
            for a, b in halves
            for part in ((a, (a + b + 1) // 2), ((a + b + 1) // 2, b))
            if part[0] < part[1]
        }
    for level in reversed(levels):
        for a, b in level:
            if b - a > 1:
                parts = [slice(a, (a + b + 1) // 2), slice((a + b + 1) // 2, b)]
                total = sum((p[part] * arrives[part]).sum(0) for part in parts)
                candidates = arrives[a:b].any(0)
                kept = np.zeros(p.shape[1], dtype=bool)
                places = np.flatnonzero(candidates)
                kept[places[top(total[places], k)]] = True
                arrives[a:b] &= kept
    return (p * arrives).sum(0) / n, p * ~arrives


def reduced(p: np.ndarray, density: float = K / D) -> tuple[np.ndarray, np.ndarray, Communicator, np.ndarray]:
    reducer, rows = GTopK(density=density), torch.from_numpy(p.copy())
    communicator = Communicator(len(p))
    found, _ = reducer.reduce(inputs_of([segment(rows)]), (), Step(0, 0), communicator)
    sent = found.compressed["a"].sent[:, 0]
    return found.mean["a"].numpy(), found.residual["a"].numpy(), communicator, sent


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 7, 8, 16])
def test_definition(workers: int) -> None:
    """Whole numbers: sums are exact, and there are many ties."""
    drawn = np.random.default_rng(workers)
    for spread in (4, 30):
        p = np.round(drawn.standard_normal((workers, D)) * spread).astype(np.float32)
        mean, residual, _, sent = reduced(p)
        expected_mean, expected_residual = defined(p, K)
        np.testing.assert_array_equal(residual, expected_residual)
        np.testing.assert_allclose(mean, expected_mean, rtol=1e-6)
        np.testing.assert_allclose(mean, (p - residual).mean(0), rtol=1e-6, atol=1e-6)
        assert (sent <= K).all()
        assert np.count_nonzero(mean) <= K


@pytest.mark.parametrize("workers", [2, 4, 8, 16, 32])
def test_paper_volume(workers: int) -> None:
    """2 k log2 n elements sent and received: k values and k indices in every round."""
    p = np.random.default_rng(0).standard_normal((workers, D)).astype(np.float32)
    _, _, communicator, _ = reduced(p)
    elements = 2 * K * int(np.log2(workers))
    assert communicator.take_charges().sum(1).tolist() == [4 * elements] * workers
    assert communicator.take_link_bytes().tolist() == [[4 * elements] * 2] * workers


def test_bounds_hold_if_rounds_drop_entries() -> None:
    """Entries of similar magnitudes: a worker sends fewer than the k of the bound of Top-k."""
    probe = Probe(GTopK(density=0.5), Diagnostics(every=1, bound=Bound(), gap=Gap()))
    rows = 1 + 0.01 * torch.rand(4, D, generator=torch.Generator().manual_seed(0))
    state = probe.init([segment(rows.clone())])
    found, _ = probe.reduce(inputs_of([segment(rows)]), state, Step(0, 0), Communicator(4))
    error = found.compressed["a"].error.sum(1).mean().item()
    assert 0.6 * D < error <= probe.latest["diagnostics/error_bound"]
    assert "diagnostics/gap_bound" not in probe.latest
