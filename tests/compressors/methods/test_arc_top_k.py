"""ARC-Top-K: bytes, rows, and its contraction as a statistical test."""

import math

import numpy as np
import pytest
import torch

from compressors.api import Segment, Step, inputs_of
from compressors.arc_top_k import ARCTopK, columns_of
from compressors.build import build_reducer
from trainers.comm.communicator import Communicator

SHAPES = ((6, 10), (30,), (4, 3, 3, 3))
SIZES = [60, 30, 108]
WORKERS, RANK = 3, 4


def test_bytes() -> None:
    """A sketch of ``RANK`` entries for each row of a matrix, and the rows that are sent; no indices."""
    rows = torch.randn(WORKERS, sum(SIZES), generator=torch.Generator().manual_seed(0))
    reducer, communicator = build_reducer(ARCTopK(density=0.34, rank=RANK), sum(SIZES)), Communicator(WORKERS)
    reducer.reduce(inputs_of([Segment("a", rows, SHAPES)]), (), Step(5, 7), communicator)
    sent, sketched = 2 * 10 + 10 * 1 + 2 * 18, 6 * RANK + 30 + 6 * RANK
    assert communicator.take_charges().tolist() == [[4 * sent, 0, 0, 4 * sketched]] * WORKERS


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
