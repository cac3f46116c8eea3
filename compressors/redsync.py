"""RedSync: a threshold between the mean and the largest magnitude, found by bisection.

Fang, Fu, Yang and Hsieh, 2018, https://arxiv.org/abs/1808.04357. The threshold is mean + r (max - mean) of
the magnitudes. ``search="binary"`` ("threshold binary search selection") bisects r in [0, 1] until between k
and 2k entries reach the threshold, or the interval is shorter than ``tolerance``. As in the paper, the
threshold is lowered only if fewer than k/2 entries reach it, so many searches end near k/2 entries.
``search="trimmed"`` ("trimmed top-k selection") lowers r from 0.8 in steps of 0.2 until at least k entries
reach the threshold, and then selects the k largest of these. The threshold is then the k-th largest
magnitude, which this method computes directly. Biased; 8 bytes per sent fp32 element and one 4-byte count per
segment. Deviations from the paper: ties of the k-th largest magnitude are all sent, the threshold is searched
in every step, and the values are not quantised. The default ``tolerance`` is this project's; the
re-implementation in SIDCo's code (https://github.com/sands-lab/SIDCo) ends at 0.2, after at most three
counts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from compressors.api import EstimatedThreshold, Rows, is_real, require, require_choice

SEARCHES = ("binary", "trimmed")


@dataclass(frozen=True, kw_only=True)
class RedSync(EstimatedThreshold):
    """Keeps entries of at least a threshold that is searched for k = max(1, floor(density * d)) entries.

    A lower ``tolerance`` makes the search longer. ``schedule`` varies the density over the epochs. Raises
    ``ValueError`` for a density outside (0, 1], an unknown search, and a tolerance outside [1e-6, 1).
    """

    search: str = "binary"
    tolerance: float = 0.001

    examples = ({"density": 0.1}, {"density": 0.05, "search": "trimmed"})

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("RedSync.search", SEARCHES, self.search)
        valid = is_real(self.tolerance) and 1e-6 <= self.tolerance < 1
        require(valid, "RedSync.tolerance", "in [1e-6, 1)", self.tolerance)

    def estimate(self, rows: Rows, state: Any) -> np.ndarray:
        if self.search == "trimmed":
            return rows.largest_wanted()
        found = rows.survey(tail=2 * rows.wanted, squares=False)
        mean = found.excesses / rows.sizes
        spread = np.array([np.fmax.reduce(tail) for tail in found.tails]) - mean
        low, high = np.zeros(len(mean)), np.ones(len(mean))
        thresholds, is_open = mean, np.ones(len(mean), dtype=bool)
        while is_open.any():
            middle = low + (high - low) / 2
            thresholds = np.where(is_open, mean + middle * spread, thresholds)
            counts = rows.count(thresholds, 2 * rows.wanted)
            is_open &= (counts <= rows.wanted) | (counts >= 2 * rows.wanted)
            few = counts < rows.wanted / 2
            low, high = np.where(is_open & ~few, middle, low), np.where(is_open & few, middle, high)
            is_open &= high - low > self.tolerance
        return thresholds
