"""Means and paired differences over seeds, with Student's 95 % interval for three or more, and verdicts.

docs/statistics.md says which differences are tested together. Their p-values are adjusted by Holm's method
(1979, https://www.jstor.org/stable/4615733): at most 5 % of experiments have a wrong verdict among them.
"""

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

ERROR = 0.05  # of an interval, and of the verdicts that are tested together
UNRESOLVED = "not resolved"
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
    def p(self) -> float | None:
        """The two-sided p-value of "no difference" by Student's test; None without a finite interval."""
        error = self._standard_error
        return None if error is None else 2 * _below(-abs(self.mean) / error, self.seeds - 1)

    def p_of_equivalence(self, margin: float) -> float | None:
        """The p-value of "a difference of ``margin`` or more" by two one-sided tests; None without p.

        Schuirmann, 1987, https://doi.org/10.1007/BF01068419. The larger of both values is that of the nearer
        margin.
        """
        error = self._standard_error
        return None if error is None else _below((abs(self.mean) - margin) / error, self.seeds - 1)

    @property
    def _standard_error(self) -> float | None:
        if self.low is None or self.high is None or not math.isfinite(self.high - self.low):
            return None
        return (self.high - self.low) / (2 * quantile(self.seeds - 1))

    def shown_as_ratio(self) -> str:
        """A difference of natural logarithms as a ratio: "3.12 [2.51, 3.88]"."""
        mean = f"{math.exp(self.mean):.3g}"
        if self.low is None or self.high is None:
            return f"{mean} (no interval)"
        return f"{mean} [{math.exp(self.low):.3g}, {math.exp(self.high):.3g}]"


class Finding(NamedTuple):
    """What is said of a difference, among those that are tested with it."""

    difference: Difference
    p: float | None  # adjusted; None without an interval
    p_of_equivalence: float | None  # adjusted; None also without a margin
    together: int  # number of differences that are tested together

    def word(self, above: str = "higher", below: str = "lower") -> str:
        """The verdict on the difference."""
        if self.p is None or self.difference.p is None:
            return "no verdict"
        side = above if self.difference.mean > 0 else below
        if self.p <= ERROR:
            return side
        return (
            f"{side} alone; not resolved for {self.together} together"
            if self.difference.p <= ERROR
            else UNRESOLVED
        )

    @property
    def is_equivalent(self) -> bool:
        return self.p_of_equivalence is not None and self.p_of_equivalence <= ERROR


def findings(found: Sequence[tuple[Difference, float | None]]) -> list[Finding]:
    """The findings on differences that are tested together, each with its margin or None."""
    p = holm([each.p for each, _ in found])
    equivalence = holm([None if margin is None else each.p_of_equivalence(margin) for each, margin in found])
    together = sum(each is not None for each in p)
    return [
        Finding(each, own, equal, together)
        for (each, _), own, equal in zip(found, p, equivalence, strict=True)
    ]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P-values adjusted for their number by Holm's method; None stays None and is not counted."""
    from statsmodels.stats.multitest import multipletests

    known = [value for value in values if value is not None]
    adjusted = iter(multipletests(known, method="holm")[1].tolist() if known else ())
    return [None if value is None else next(adjusted) for value in values]


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
    """Student's t of a two-sided 95 % interval."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 1 - ERROR / 2))


def _below(t: float, degrees_of_freedom: int) -> float:
    """The probability of Student's t below ``t``."""
    from scipy.special import stdtr

    return float(stdtr(degrees_of_freedom, t))


def counted(seeds: int) -> str:
    """The number of seeds as text if they are too few for an interval, else an empty text."""
    if seeds >= FEWEST_SEEDS:
        return ""
    return " (one seed)" if seeds == 1 else f" ({seeds} seeds)"
