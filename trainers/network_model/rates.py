"""Bandwidths as text: ``10gbit`` in settings, ``10 Gbit/s`` in prose.

Standard library only, because code that reads results uses it.
"""

import math

_IN_PROSE = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s"))
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(rate: str) -> float:
    """``100mbit`` as a number, ``unlimited`` as infinity. Raises ``ValueError`` for anything else."""
    said = str(rate)
    if said == "unlimited":
        return math.inf
    unit = next((unit for unit in UNITS if said.endswith(unit)), None)
    try:
        number = float(said.removesuffix(unit)) if unit else math.nan
    except ValueError:
        number = math.nan
    if unit is None or not math.isfinite(number):
        raise ValueError(f"a rate must be a number and kbit, mbit or gbit, or unlimited, got {rate}")
    if number <= 0:
        raise ValueError(f"a rate must be above 0, got {rate}")
    return number * UNITS[unit]


def in_prose(bits_per_second: float) -> str:
    """A finite bandwidth with three digits: ``3.62 Gbit/s``."""
    fitting = ((size, unit) for size, unit in _IN_PROSE if float(f"{bits_per_second:.2e}") >= size)
    size, unit = next(fitting, _IN_PROSE[-1])
    return f"{float(f'{bits_per_second / size:.3g}'):g} {unit}"
