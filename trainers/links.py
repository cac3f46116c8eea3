"""Bytes that a collective moves over a worker's link, were each of n workers alone on its machine.

Standard library only, so that what reads results may use it.
"""


def all_reduce_bytes(num_bytes: float, workers: int) -> float:
    """That leave a worker, and reach it, when ``num_bytes`` of each are averaged.

    In a ring and in a reduce-scatter with an all-gather alike: 2 (n - 1) pieces of a nth each.
    """
    return 2 * (workers - 1) / workers * num_bytes


def gather_bytes(num_bytes: float, workers: int) -> float:
    """That leave a worker whose ``num_bytes`` all others get: n - 1 times as many."""
    return (workers - 1) * num_bytes
