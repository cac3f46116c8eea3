"""``cocktail`` against its definition, and the draws of chains that begin with shared coordinates."""

import numpy as np
import pytest
import torch
from methods import named, reduce_once

from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.core import randomness
from compressors.core.randomness import derive_seed, distinct_coordinates
from compressors.feedback import ErrorFeedback
from compressors.random_k import RandomK
from compressors.top_k import TopK

D, N, BUCKET, LEVELS = 20_000, 4, 128, 7


def test_definition() -> None:
    """A tenth of the coordinates is drawn for all; each worker sends the largest fifth of it, rounded."""
    p = torch.randn(N, D, generator=torch.Generator().manual_seed(0))
    reduced, _, communicator = reduce_once(build_reducer(named("cocktail", {}).method(), D), p, step=3)
    drawn = distinct_coordinates(derive_seed("shared", 0, 3, "a"), D, D // 10).numpy()
    left, rows = reduced.residual["a"].numpy(), p.numpy()
    for own, rest in zip(rows, left, strict=True):
        kept = np.sort(drawn[np.argsort(-np.abs(own[drawn]), kind="stable")[: D // 50]])
        others = np.delete(np.arange(D), kept)
        np.testing.assert_array_equal(rest[others], own[others])
        for bucket in np.split(kept, range(BUCKET, len(kept), BUCKET)):
            distance = np.abs(own[bucket]).max() / LEVELS
            levels = (own - rest)[bucket] / distance
            np.testing.assert_allclose(levels, np.round(levels), atol=1e-4)
            assert np.abs(rest[bucket]).max() < distance * (1 + 1e-5)
    np.testing.assert_allclose(reduced.mean["a"].numpy(), (rows - left).mean(0), atol=1e-6)
    sent = D // 50  # for each a 4-byte index and a level of half a byte; for each bucket 4 bytes
    assert reduced.compressed["a"].counts.tolist() == [sent] * N
    assert communicator.take_charges().sum(1).tolist() == [4 * sent + sent // 2 + 4 * -(-sent // BUCKET)] * N


@pytest.mark.parametrize(
    ("first", "draws"),
    [
        (RandomK(density=0.2), 1),
        (Chain(first=RandomK(density=0.5), second=RandomK(density=0.2)), 2),
    ],
    ids=["random_k", "random_k of random_k"],
)
def test_shared_coordinates_are_drawn_once_for_all_workers(
    first: object, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = randomness._random_words
    monkeypatch.setattr(randomness, "_random_words", lambda *a: calls.append(a) or original(*a))
    reducer = ErrorFeedback(build_reducer(Chain(first=first, second=TopK(density=0.5)), 300))
    distinct_coordinates.cache_clear()
    rows = torch.randn(8, 300, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        reduce_once(reducer, rows, step=step)
    assert len(calls) == 3 * draws
