"""Means and paired differences over seeds, with Student's 95 % interval for three or more seeds.

Joint intervals are corrected for multiple comparisons by Bonferroni's method: each of m intervals is a
Student interval of level 1 - 0.05 / m. Then all m contain their true values in at least 95 % of experiments.
"""

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

CONFIDENCE = 0.95
NOT_SHOWN = "no difference shown"
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

    @property
    def side(self) -> int:
        """1 if the interval is above 0, -1 if below, 0 if it contains 0 or there is none."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)

    def word(self, above: str, below: str) -> str:
        if self.low is None:
            return "no verdict"
        return {1: above, -1: below, 0: NOT_SHOWN}[self.side]

    def shown(self, digits: int = 2) -> str:
        """ "+0.84 [+0.14, +1.53]"; without an interval, the mean and the reason."""
        mean = f"{self.mean:+.{digits}f}"
        if self.low is None:
            few = self.seeds < FEWEST_SEEDS
            return f"{mean} ({f'seeds: {self.seeds}' if few else f'the same in all {self.seeds} seeds'})"
        return f"{mean} {self.ends(digits)}"

    def ends(self, digits: int = 2) -> str:
        return "-" if self.low is None else f"[{self.low:+.{digits}f}, {self.high:+.{digits}f}]"

    def shown_as_ratio(self) -> str:
        """A difference of natural logarithms as a ratio: "3.12 [2.51, 3.88]"."""
        mean = f"{math.exp(self.mean):.3g}"
        if self.low is None or self.high is None:
            return f"{mean} (no interval)"
        return f"{mean} [{math.exp(self.low):.3g}, {math.exp(self.high):.3g}]"


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


def joint_interval(differences: Sequence[float], num_comparisons: int) -> Difference:
    """The interval of one of ``num_comparisons`` paired differences; ``differences`` has one value per seed.

    Raises ``ValueError`` for no values.
    """
    if not differences:
        raise ValueError("a comparison needs at least one pair of runs with a common seed, got none")
    mean, seeds = statistics.fmean(differences), len(differences)
    spread = statistics.stdev(differences) if seeds > 1 else 0.0
    if seeds < FEWEST_SEEDS or spread <= 1e-12 * max(map(abs, differences)):
        return Difference(mean, None, None, seeds)
    half = quantile(seeds - 1, num_comparisons) * spread / math.sqrt(seeds)
    return Difference(mean, mean - half, mean + half, seeds)


@cache
def quantile(degrees_of_freedom: int, num_comparisons: int = 1) -> float:
    """Student's t for each of ``num_comparisons`` two-sided intervals; for one, of a 95 % interval."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 1 - (1 - CONFIDENCE) / (2 * num_comparisons)))


def confidence(num_comparisons: int) -> str:
    """The level of each of ``num_comparisons`` intervals in per cent, for example 98.75 for four."""
    return f"{100 * (1 - (1 - CONFIDENCE) / num_comparisons):.4g}"


def counted(seeds: int) -> str:
    """The number of seeds as text if they are too few for an interval, else an empty text."""
    if seeds >= FEWEST_SEEDS:
        return ""
    return " (one seed)" if seeds == 1 else f" ({seeds} seeds)"
