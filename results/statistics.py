"""Means and paired differences over seeds, with Student's 95 % interval."""

import math
import statistics
from collections.abc import Sequence

CONFIDENCE = 0.95


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean of n values and the half width of its 95 % interval.

    Half width: t s / sqrt(n), s being the standard deviation with n - 1 and t the 0.975 quantile of
    Student's distribution with n - 1 degrees of freedom. One value says nothing of its spread: None.
    A value that is NaN or infinite makes the half width NaN. Raises ``ValueError`` without any value.
    """
    if not values:
        raise ValueError("mean_and_interval needs at least one value, got none")
    mean = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else float(sum(values))
    if len(values) == 1:
        return mean, None
    if not math.isfinite(mean):
        return mean, math.nan
    return mean, quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def paired_difference(
    a: Sequence[float], b: Sequence[float]
) -> tuple[float, float, float] | tuple[float, None, None]:
    """The mean of a_i - b_i, and the two ends of its 95 % interval.

    ``a[i]`` and ``b[i]`` share a seed: what the seed alone does cancels. The interval is that of
    ``mean_and_interval`` for the differences; None at both ends for a single pair. Raises
    ``ValueError`` when there is no pair or the lengths differ.
    """
    if len(a) != len(b):
        raise ValueError(f"paired_difference needs as many values in a as in b, got {len(a)} and {len(b)}")
    mean, half = mean_and_interval([x - y for x, y in zip(a, b, strict=True)])
    return (mean, None, None) if half is None else (mean, mean - half, mean + half)


def quantile(degrees_of_freedom: int) -> float:
    """Student's t of a two-sided 95 % interval: 4.303 for 2 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 + CONFIDENCE) / 2))
