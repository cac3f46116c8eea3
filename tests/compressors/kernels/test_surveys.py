"""Surveys by compiled loops and by torch: equal counts and tails, and equal sums up to rounding."""

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.api import Segment
from compressors.core.segments import Input
from compressors.kernels.choice import backend_of
from compressors.kernels.reference import Backend
from compressors.parts.estimated import Rows
from compressors.parts.surveys import Survey

COMPILED, REFERENCE = backend_of(torch.device("cpu")), Backend()
WORKERS, SIZES = 2, (40_000, 300, 1)


def inputs(dtype: torch.dtype) -> list[Input]:
    generator = torch.Generator().manual_seed(0)

    def drawn(size: int) -> Tensor:
        return torch.randn(WORKERS, size, generator=generator).to(dtype)

    return [
        Input(Segment(str(size), drawn(size), ((size,),)), memory=drawn(size), scale=0.37) for size in SIZES
    ]


def assert_same(own: Survey, other: Survey, squares: bool) -> None:
    np.testing.assert_array_equal(own.counts, other.counts)
    np.testing.assert_allclose(own.excesses, other.excesses, rtol=1e-12)
    if squares:
        np.testing.assert_allclose(own.squares, other.squares, rtol=1e-12)
        np.testing.assert_allclose(own.totals, other.totals, rtol=1e-9, atol=1e-9)
    else:
        assert np.isnan(own.squares).all() and np.isnan(own.totals).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tails_answer_for_higher_levels(dtype: torch.dtype, squares: bool, threads: int) -> None:
    """Levels above the floors: a survey of the tails equals a survey of all entries."""
    given, before = inputs(dtype), torch.get_num_threads()
    rows = WORKERS * len(SIZES)
    wanted = np.repeat([20_000, 200, 1], WORKERS)
    torch.set_num_threads(threads)
    try:
        found = COMPILED.survey(given, np.zeros(rows), wanted, squares)
        assert_same(found, REFERENCE.survey(given, np.zeros(rows), wanted, squares), squares)
        for level in (0.8, 1.0, 1.9, 2.5, 9.0):
            levels = np.full(rows, level, np.float32).astype(np.float64)
            levels = np.maximum(levels, np.nextafter(found.floors.astype(np.float32), np.float32(9)))
            of_entries = REFERENCE.survey(given, levels, 0 * wanted, squares)
            found = COMPILED.survey_tails(found, levels, squares)
            assert_same(found, of_entries, squares)
            for tail, floor, row in zip(found.tails, found.floors, entries_of(given), strict=True):
                np.testing.assert_array_equal(np.sort(tail[tail > floor]), np.sort(row[row > floor]))
    finally:
        torch.set_num_threads(before)


def entries_of(given: list[Input]) -> list[np.ndarray]:
    """The magnitudes of every row."""
    return [row for own in given for row in own.seen().rows.abs().numpy()]


def test_a_level_below_the_floors_reads_the_entries_again() -> None:
    """The tail holds the 100 largest magnitudes, which are all above the second level."""
    x = torch.linspace(-1, 1, 50_001).repeat(1, 1)
    rows = Rows([Input(Segment("a", x, ((x.shape[1],),)))], [50])
    first = rows.survey(tail=np.array([100]), squares=False)
    level = np.array([0.5])
    assert (level < first.floors).all()
    again = rows.survey(level, tail=np.array([0]), squares=False)
    expected = REFERENCE.survey(rows.inputs, level, np.array([0]), False)
    np.testing.assert_array_equal(again.counts, expected.counts)
    np.testing.assert_allclose(again.excesses, expected.excesses, rtol=1e-12)
