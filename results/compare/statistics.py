"""Means and paired differences over seeds, with Student's 95 % interval for three or more seeds."""

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

CONFIDENCE = 0.95
FEWEST_SEEDS = 3  # for an interval: for two seeds its half width is 12.7 standard errors
WITHOUT_INTERVAL = (
    "A number without ± or interval is of fewer than three seeds, or the same in every seed: a quantity that "
    "no seed changes, or seeds whose runs are equal."
)


class Difference(NamedTuple):
    """A mean difference over seeds, with the ends of its interval if there is one."""

    mean: float
    low: float | None
    high: float | None
    seeds: int  # number of seeds


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean of n values and the half width of its 95 % interval.

    The half width is t s / sqrt(n), with the standard deviation s (divisor n - 1) and the 0.975 quantile t of
    Student's distribution with n - 1 degrees of freedom. It is None if ``standard_deviation`` is None, and
    NaN if a value is NaN or infinite. Raises ``ValueError`` for no values.
    """
    if not values:
        raise ValueError("mean_and_interval needs at least one value, got none")
    mean = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else float(sum(values))
    deviation = standard_deviation(values)
    return mean, None if deviation is None else quantile(len(values) - 1) * deviation / math.sqrt(len(values))


def standard_deviation(values: Sequence[float], scale: float | None = None) -> float | None:
    """Standard deviation with divisor n - 1; NaN if a value is not finite.

    None for fewer than three values, and if they differ only by rounding: by at most 1e-12 of ``scale``,
    which is their mean by default. Runs that are equal for all seeds give no information on the deviation.
    """
    if len(values) < FEWEST_SEEDS:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    spread = statistics.stdev(values)
    scale = abs(math.fsum(values) / len(values)) if scale is None else scale
    return None if spread <= 1e-12 * scale else spread


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """The mean of a_i - b_i, and the two ends of its 95 % interval.

    ``a[i]`` and ``b[i]`` have the same seed, so the seed's own effect cancels. The interval is that of
    ``mean_and_interval`` for the differences; both ends are None if there is none. Raises ``ValueError``
    if there is no pair or the lengths differ.
    """
    if len(a) != len(b):
        raise ValueError(f"paired_difference needs as many values in a as in b, got {len(a)} and {len(b)}")
    differences = [x - y for x, y in zip(a, b, strict=True)]
    mean, half = mean_and_interval(differences)
    if half is None or standard_deviation(differences, max(map(abs, (*a, *b)))) is None:
        return Difference(mean, None, None, len(differences))
    return Difference(mean, mean - half, mean + half, len(differences))


@cache
def quantile(degrees_of_freedom: int) -> float:
    """Student's t of a two-sided 95 % interval: 4.303 for 2 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 + CONFIDENCE) / 2))


def counted(seeds: int) -> str:
    """The number of seeds as text if they are too few for an interval, else an empty text."""
    if seeds >= FEWEST_SEEDS:
        return ""
    return " (one seed)" if seeds == 1 else f" ({seeds} seeds)"
