"""Bandwidths as text: ``10gbit``.

Standard library only, because code that reads results uses it.
"""

import math

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(rate: str) -> float:
    """``100mbit`` as a number, ``unlimited`` as infinity. Raises ``ValueError`` for any other text."""
    if rate == "unlimited":
        return math.inf
    for unit, factor in UNITS.items():
        if rate.endswith(unit):
            try:
                number = float(rate.removesuffix(unit))
            except ValueError:
                break
            if 0 < number < math.inf:
                return number * factor
    raise ValueError(f"a rate must be a number and kbit, mbit or gbit, or unlimited, got {rate}")
