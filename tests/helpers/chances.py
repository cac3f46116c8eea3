"""Bounds that a correct implementation exceeds with a probability below 1e-6."""

import math

UNLIKELY = 1e-6


def hoeffding(number: int, span: float = 1.0) -> float:
    """Bound on |sum - E[sum]| of ``number`` independent terms, each in an interval of length ``span``."""
    return span * math.sqrt(number * math.log(2 / UNLIKELY) / 2)


def bernstein(variance: float, largest: float) -> float:
    """Bound on |sum - E[sum]|: independent terms, total ``variance``, each within ``largest`` of its mean."""
    log = math.log(2 / UNLIKELY)
    return largest * log / 3 + math.sqrt((largest * log / 3) ** 2 + 2 * variance * log)
