"""Break-even bandwidth and rounds in records, and the bandwidth as text.

Standard library only, because code that reads results uses it.
"""

from collections.abc import Sequence

from trainers.network_model.rates import in_prose

NAME = "comm/break_even_bits_per_second"
ROUNDS = "comm/rounds"  # sequential messages of a step
ANY_BANDWIDTH = 1e15  # a petabit per second stands for any network, because JSON has no infinity


def in_words(bits_per_second: Sequence[float]) -> str:
    """The link speed below which compression is faster than dense training, for one run or several seeds."""
    low, high = min(bits_per_second), max(bits_per_second)
    if high <= 0:
        return "never"
    if low >= ANY_BANDWIDTH:
        return "on any network"
    if low == high:
        return f"below {_speed(low)}"
    first, last = _speed(low), _speed(high)
    unit = f" {last.rpartition(' ')[2]}"
    return f"below {first.removesuffix(unit)} to {last}"


def _speed(bits_per_second: float) -> str:
    if bits_per_second >= ANY_BANDWIDTH:
        return "any speed"
    return "0" if bits_per_second < 1 else in_prose(bits_per_second)
