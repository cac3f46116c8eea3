"""Joint intervals of several paired differences over seeds, corrected for multiple comparisons.

Bonferroni's correction: each of m intervals is a Student interval of level 1 - 0.05 / m. Then all m contain
their true values in at least 95 % of experiments.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95  # joint level of all intervals
LEAST_SEEDS = 3
NOT_SHOWN = "no difference shown"


@dataclass(frozen=True)
class JointInterval:
    """One difference: its mean over seeds, and an interval for three or more seeds that are not all equal."""

    mean: float
    low: float | None
    high: float | None
    seeds: int

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
            few = self.seeds < LEAST_SEEDS
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


def joint_interval(differences: Sequence[float], num_comparisons: int) -> JointInterval:
    """The interval of one of ``num_comparisons`` paired differences; ``differences`` has one value per seed.

    Raises ``ValueError`` for no values.
    """
    if not differences:
        raise ValueError("a comparison needs at least one pair of runs with a common seed, got none")
    mean, seeds = statistics.fmean(differences), len(differences)
    spread = statistics.stdev(differences) if seeds > 1 else 0.0
    if seeds < LEAST_SEEDS or spread <= 1e-12 * max(map(abs, differences)):
        return JointInterval(mean, None, None, seeds)
    half = quantile(seeds - 1, num_comparisons) * spread / math.sqrt(seeds)
    return JointInterval(mean, mean - half, mean + half, seeds)


def quantile(degrees_of_freedom: int, num_comparisons: int) -> float:
    """Student's t for each of ``num_comparisons`` two-sided intervals; for one, of a 95 % interval."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 1 - (1 - CONFIDENCE) / (2 * num_comparisons)))


def confidence(num_comparisons: int) -> str:
    """The level of each of ``num_comparisons`` intervals in per cent, for example 98.75 for four."""
    return f"{100 * (1 - (1 - CONFIDENCE) / num_comparisons):.4g}"
