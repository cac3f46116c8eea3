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


def broadcast_bytes(num_bytes: float, workers: int, root: int) -> list[tuple[float, float]]:
    """That leave and reach each worker when ``num_bytes`` of ``root`` go to all along a binomial tree.

    In round i the first 2^i workers, counted from ``root``, send to the next 2^i.
    """
    sent = [0] * workers
    for number in range(1, workers):
        sent[number - (1 << (number.bit_length() - 1))] += 1
    counted = [sent[(worker - root) % workers] for worker in range(workers)]
    return [(count * num_bytes, num_bytes * (worker != root)) for worker, count in enumerate(counted)]
