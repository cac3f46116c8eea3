"""ARC-Top-K against its definition, and its contraction as a statistical test."""

import math

import numpy as np
import pytest
import torch
from methods import reduce_once

from compressors.api import Segment, Step, inputs_of
from compressors.arc_top_k import ARCTopK, columns_of
from compressors.build import build_reducer
from compressors.core.randomness import generator
from trainers.comm.communicator import Communicator

SHAPES = ((6, 10), (30,), (4, 3, 3, 3))
SIZES = [60, 30, 108]
WORKERS, RANK = 3, 4


def test_definition() -> None:
    """Of each layer the rows with the largest norm in the mean of G V are sent; seed and step determine V."""
    drawn = torch.randn(WORKERS, sum(SIZES), generator=torch.Generator().manual_seed(0))
    p = drawn.numpy().copy()
    reducer, communicator = build_reducer(ARCTopK(density=0.34, rank=RANK), sum(SIZES)), Communicator(WORKERS)
    reduced, _ = reducer.reduce(inputs_of([Segment("a", drawn, SHAPES)]), (), Step(5, 7), communicator)
    kept = []
    for number, (part, columns, k) in enumerate(
        zip(np.split(p, np.cumsum(SIZES)[:-1], axis=1), (10, 1, 18), (2, 10, 2), strict=True)
    ):
        matrices = part.reshape(WORKERS, -1, columns)
        v = np.ones((1, 1))
        if columns > 1:
            stream = generator("sketch", 5, 7, "a", number)
            v = torch.randn(columns, RANK, generator=stream).numpy()
        norms = ((matrices @ v).mean(0) ** 2).sum(1)
        rows = np.zeros(len(norms), dtype=bool)
        rows[np.argsort(-norms, kind="stable")[:k]] = True
        kept.append(rows.repeat(columns))
    sent = np.concatenate(kept)
    np.testing.assert_array_equal(reduced.residual["a"].numpy(), p * ~sent)
    np.testing.assert_allclose(reduced.mean["a"].numpy(), (p * sent).mean(0), rtol=1e-5, atol=1e-6)
    sketched = 4 * (6 * RANK + 30 + 6 * RANK)
    assert communicator.take_charges().tolist() == [[4 * sent.sum(), 0, 0, sketched]] * WORKERS


@pytest.mark.parametrize(
    ("shape", "columns"),
    [
        ((), 1),
        ((7,), 1),
        ((5, 8), 8),
        ((64, 3, 3, 3), 18),
        ((5, 1, 3, 3), 9),
        ((8, 4, 1, 1), 2),
        ((4, 2, 5), 5),
    ],
)
def test_rows(shape: tuple[int, ...], columns: int) -> None:
    assert columns_of(shape) == columns
    assert math.prod(shape) % columns == 0


def test_sends_more_of_the_norm_than_random_rows() -> None:
    """Mean of ||x - C(x)||^2 over draws of V below (1 - k / n) ||x||^2, the value of random rows.

    Shares are in [0, 1]: if the expectation is not below this value, the test passes with a probability of
    less than 1e-6 (Hoeffding's bound).
    """
    draws, rows, columns, k = 200, 20, 12, 4
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    x *= torch.linspace(0.2, 2, rows)[:, None]
    shares = []
    for number in range(draws):
        flat = x.flatten()[None].clone()
        reducer = build_reducer(ARCTopK(density=k / rows), flat.numel())
        reduced, _ = reducer.reduce(
            inputs_of([Segment("a", flat, ((rows, columns),))]), (), Step(0, number), Communicator(1)
        )
        shares.append((reduced.residual["a"].square().sum() / x.square().sum()).item())
    margin = math.sqrt(math.log(1e6) / (2 * draws))
    assert np.mean(shares) + margin < 1 - k / rows


@pytest.mark.parametrize("rank", [0, -1, 1.5, True, None])
def test_rank_outside_its_range(rank: object) -> None:
    with pytest.raises(ValueError, match=r"ARCTopK\.rank must be an integer >= 1, got"):
        ARCTopK(density=0.1, rank=rank)


def test_a_vector_is_its_own_sketch() -> None:
    """Of a vector the k largest magnitudes of the mean are sent."""
    rows = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    reduced, _, _ = reduce_once(build_reducer(ARCTopK(density=0.1), 50), rows)
    largest = np.argsort(-np.abs(rows.mean(0).numpy()))[:5]
    assert set(np.flatnonzero(reduced.mean["a"].numpy())) == set(largest)
