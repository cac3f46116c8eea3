"""Break-even: the bandwidth below which compression is faster than dense training.

The latency-bandwidth model of collectives: Thakur, Rabenseifner and Gropp, 2005,
https://doi.org/10.1177/1094342005051521. Standard library only, because code that reads results uses it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trainers.network_model.rates import in_prose

NAME = "comm/break_even_bits_per_second"
ROUNDS = "comm/rounds"  # sequential messages of a step
COMPRESSION = "time/compression_seconds"  # of a worker's step, with the sum over all workers
ANY_BANDWIDTH = 1e15  # a petabit per second stands for any network, because JSON has no infinity


class StepCost(NamedTuple):
    """StepCost of a worker's step without forward pass, backward pass and update."""

    seconds: float  # processor time of compression and aggregation
    rounds: float  # sequential messages
    traffic_bytes: float  # bytes that leave its machine, and ``Clock.detour_bytes``


def break_even(compressed: StepCost, dense: StepCost, latency_seconds: float = 0.0) -> float:
    """Bandwidth in bits per second below which the compressed step is faster.

    With each of n workers on its own machine, a step takes t + seconds + latency rounds + 8 traffic / B. The
    time t of forward pass, backward pass and update is the same with and without compression. The two steps
    take equal times at

        B = 8 (traffic_dense - traffic) / (seconds - seconds_dense + latency (rounds - rounds_dense)).

    Returns 0 if compression saves no bytes, and ``ANY_BANDWIDTH`` if it takes no additional time.
    """
    saved_bits = 8 * (dense.traffic_bytes - compressed.traffic_bytes)
    extra_seconds = compressed.seconds - dense.seconds + latency_seconds * (compressed.rounds - dense.rounds)
    if saved_bits < 0 or (saved_bits == 0 and extra_seconds >= 0):
        return 0.0
    if extra_seconds <= 0:
        return ANY_BANDWIDTH
    return min(ANY_BANDWIDTH, saved_bits / extra_seconds)


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
