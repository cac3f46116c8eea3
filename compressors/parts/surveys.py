"""Surveys for estimates of thresholds: sums over each row's entries, and its largest magnitudes.

A row is the vector p of one worker in one segment: row s W + w is that of worker w in segment s.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from compressors.core.norms import layer_sums
from compressors.core.segments import Input


class Survey(NamedTuple):
    """Sums, counts and largest magnitudes of R rows, with a level for each row."""

    counts: np.ndarray  # [R] int64, number of entries with |p| >= level, and of NaN
    excesses: np.ndarray  # [R] float64, sum of |p| - level over these entries
    totals: np.ndarray  # [R] float64, sum of p; NaN if not requested
    squares: np.ndarray  # [R] float64, sum of (|p| - level)^2; NaN if not requested
    tails: list[np.ndarray]  # of each row: magnitudes, in any order, at least those above the floor
    floors: np.ndarray  # [R] float64, of the tails

    @classmethod
    def of(
        cls, counts: np.ndarray, sums: Sequence[np.ndarray], tails: list[np.ndarray], floors: np.ndarray
    ) -> Self:
        """The survey with ``sums`` of the excesses, or of excesses, entries and squares, [R] each."""
        excesses, totals, squares = sums if len(sums) == 3 else (sums[0], *np.full((2, len(floors)), np.nan))
        return cls(counts.astype(np.int64), excesses, totals, squares, tails, floors)


def survey_rows(inputs: list[Input], levels: np.ndarray, wanted: np.ndarray, squares: bool) -> Survey:
    """The survey of all rows with ``levels`` [R]; tails have the ``wanted`` [R] largest magnitudes.

    Totals and squares are added up only with ``squares``. Compiled loops follow this definition. Results are
    copied from a device in one transfer.
    """
    facts, tails = [], []
    for given, level, number in zip(inputs, _split(levels, inputs), _split(wanted, inputs), strict=True):
        rows, level = given.seen().rows, level.to(given.rows, non_blocking=True)[:, None]
        counts = (~(rows.abs() < level)).sum(1).double()
        excess, square = _excesses(level.double())
        kinds = [excess, _itself, square] if squares else [excess]
        sums = [layer_sums(rows, given.segment.edges, of) for of in kinds]
        facts.append(torch.stack([counts, *(own.sum(1) for own in sums)], 1))
        tails.append(rows.abs().topk(min(given.size, int(number.max()))).values.double())
    sizes = [own.numel() for own in (*facts, *tails)]
    arrived = torch.cat([own.flatten() for own in (*facts, *tails)]).cpu().split(sizes)
    counts, *found = torch.cat(
        [own.view(shaped.shape) for own, shaped in zip(arrived, facts, strict=False)]
    ).T.numpy()
    rows_of = zip(arrived[len(facts) :], tails, strict=True)
    largest = [row.numpy() for own, shaped in rows_of for row in own.view(shaped.shape)]
    floors = np.array([row[-1] if len(row) else np.inf for row in largest])
    return Survey.of(counts, found, largest, floors)


def survey_tails(found: Survey, levels: np.ndarray) -> Survey:
    """``found`` at ``levels`` [R], which are above its floors, from the magnitudes of its tails."""
    rows = zip(found.tails, levels.tolist(), strict=True)
    above = [tail[~(tail < level)].astype(np.float64) - level for tail, level in rows]
    counts = np.array([len(own) for own in above])
    excesses, squares = np.array([[own.sum(), np.square(own).sum()] for own in above]).T
    return found._replace(counts=counts, excesses=excesses, squares=squares)


Of = Callable[[Tensor], Tensor]


def _itself(x: Tensor) -> Tensor:
    return x


def _excesses(level: Tensor) -> tuple[Of, Of]:
    """Functions for |x| - ``level`` [W, 1] float64 and its square; both are 0 below the level."""

    def excess(x: Tensor) -> Tensor:
        return x.abs_().sub_(level).clamp_(min=0)

    return excess, lambda x: excess(x).square_()


def _split(of_rows: np.ndarray, inputs: list[Input]) -> list[Tensor]:
    """[R] as one tensor [W] per segment."""
    return list(torch.from_numpy(of_rows).split(len(inputs[0].rows)))
