"""Means and paired differences over seeds, with Student's 95 % interval for three or more seeds."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
FEWEST_SEEDS = 3  # of an interval: of two Student's is 12.7 standard errors to either side
WITHOUT_INTERVAL = (
    "A number without ± or interval is of fewer than three seeds, or the same in every seed: a quantity that "
    "no seed changes, or seeds whose runs are equal."
)


class Difference(NamedTuple):
    """A mean difference over seeds; ends of its interval where there is one."""

    mean: float
    low: float | None
    high: float | None
    seeds: int  # how many


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean of n values and the half width of its 95 % interval.

    Half width: t s / sqrt(n), s being the standard deviation with n - 1 and t the 0.975 quantile of
    Student's distribution with n - 1 degrees of freedom. None where ``standard_deviation`` is None.
    A value that is NaN or infinite makes the half width NaN. Raises ``ValueError`` without any value.
    """
    if not values:
        raise ValueError("mean_and_interval needs at least one value, got none")
    mean = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else float(sum(values))
    deviation = standard_deviation(values)
    return mean, None if deviation is None else quantile(len(values) - 1) * deviation / math.sqrt(len(values))


def mean_and_half(values: Iterable[float]) -> tuple[float, float]:
    """The mean and half its interval, which is 0 where seeds tell none."""
    values = list(values)
    if not values:
        return math.nan, 0.0
    mean, half = mean_and_interval(values)
    return mean, half or 0.0


def standard_deviation(values: Sequence[float], scale: float | None = None) -> float | None:
    """With n - 1; NaN where a value is not finite.

    None of fewer than three values, and where only rounding tells them apart: 1e-12 of ``scale``, by default
    of their mean. Equal seeds are one run, which knows of no spread.
    """
    if len(values) < FEWEST_SEEDS:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    spread = statistics.stdev(values)
    scale = abs(statistics.mean(values)) if scale is None else scale
    return None if spread <= 1e-12 * scale else spread


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """The mean of a_i - b_i, and the two ends of its 95 % interval.

    ``a[i]`` and ``b[i]`` share a seed: what the seed alone does cancels. The interval is that of
    ``mean_and_interval`` for the differences; None at both ends where that has none. Raises
    ``ValueError`` when there is no pair or the lengths differ.
    """
    if len(a) != len(b):
        raise ValueError(f"paired_difference needs as many values in a as in b, got {len(a)} and {len(b)}")
    differences = [x - y for x, y in zip(a, b, strict=True)]
    mean, half = mean_and_interval(differences)
    if half is None or standard_deviation(differences, max(map(abs, (*a, *b)))) is None:
        return Difference(mean, None, None, len(differences))
    return Difference(mean, mean - half, mean + half, len(differences))


def quantile(degrees_of_freedom: int) -> float:
    """Student's t of a two-sided 95 % interval: 4.303 for 2 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 + CONFIDENCE) / 2))


def counted(seeds: int) -> str:
    """So many seeds, where they are too few for an interval; else nothing."""
    if seeds >= FEWEST_SEEDS:
        return ""
    return " (one seed)" if seeds == 1 else f" ({seeds} seeds)"
