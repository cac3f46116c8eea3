"""Gaussian-k: a threshold from a normal distribution with the vector's mean and standard deviation.

Shi, Chu, Cheung and See, 2019, https://arxiv.org/abs/1911.08772, algorithm 1. The first threshold is mean +
z std, where z is exceeded in magnitude by a share k / d of a standard normal distribution, as in the authors'
code. It is halved while fewer than 2k/3 entries reach it, and multiplied by 1.5 while more than 4k/3 do, at
most twice: the authors' code (https://github.com/hclhkbu/GaussianK-SGD) counts three times and sends what it
counted last. Biased; the number of elements sent is not bounded: with error feedback, normal gradients and
k = d / 100 it is 4.5 k on average. 8 bytes per sent fp32 element and one 4-byte count per segment.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from compressors.api import EstimatedThreshold, Rows, is_count, require


@dataclass(frozen=True, kw_only=True)
class GaussianK(EstimatedThreshold):
    """Keeps entries of at least an estimate of the k-th largest magnitude, k = max(1, floor(density * d)).

    ``adjustments`` is the largest number of changes of the threshold. ``schedule`` varies the density over
    the epochs. Raises ``ValueError`` for a density outside (0, 1] and for less than 1 adjustment.
    """

    adjustments: int = 2

    examples = ({"density": 0.1},)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_count(self.adjustments), "GaussianK.adjustments", "an integer >= 1", self.adjustments)

    def estimate(self, rows: Rows, state: Any) -> np.ndarray:
        few, many = 2 * rows.wanted / 3, 4 * rows.wanted / 3
        enough = many.astype(np.int64) + 1
        found = rows.survey(tail=enough)
        mean = found.totals / rows.sizes
        deviation = np.sqrt(np.maximum(0, found.squares / rows.sizes - mean**2))
        thresholds = mean + quantiles(rows) * deviation
        for _ in range(self.adjustments):
            counts = rows.count(thresholds, enough)
            factors = np.where(counts < few, 0.5, np.where(counts > many, 1.5, 1.0))
            if (factors == 1).all():
                break
            thresholds = thresholds * factors
        return thresholds


def quantiles(rows: Rows) -> np.ndarray:
    """z of each row, [R]: a share k / d of a standard normal distribution is larger in magnitude."""
    shares, where = np.unique(rows.wanted / rows.sizes, return_inverse=True)
    return np.array([-NormalDist().inv_cdf(share / 2) for share in shares.tolist()])[where]
