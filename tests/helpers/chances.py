"""Bounds that a correct implementation exceeds with a probability below 1e-6."""

import math

UNLIKELY = 1e-6


def hoeffding(number: int, span: float = 1.0) -> float:
    """Bound on |sum - E[sum]| of ``number`` independent terms, each in an interval of length ``span``."""
    return span * math.sqrt(number * math.log(2 / UNLIKELY) / 2)
