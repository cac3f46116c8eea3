"""Bytes that a collective moves over a worker's link, if each of n workers has its own machine.

Standard library only, because code that reads results uses it.
"""


def all_reduce_bytes(num_bytes: float, workers: int) -> float:
    """Bytes that leave and reach a worker in an all-reduce of ``num_bytes``.

    The same in a ring and in a reduce-scatter with an all-gather: 2 (n - 1) pieces of 1/n each.
    """
    return 2 * (workers - 1) / workers * num_bytes


def reduce_scatter_bytes(num_bytes: float, workers: int) -> float:
    """Bytes that leave and reach a worker in a reduce-scatter of ``num_bytes``: n - 1 pieces of 1/n each."""
    return (workers - 1) / workers * num_bytes


def gather_bytes(num_bytes: float, workers: int) -> float:
    """Bytes that leave a worker in a gather of its ``num_bytes``: n - 1 times as many."""
    return (workers - 1) * num_bytes


def broadcast_bytes(num_bytes: float, workers: int, root: int) -> list[tuple[float, float]]:
    """Bytes that leave and reach each worker in a broadcast of ``num_bytes`` from ``root`` by a binomial
    tree.

    In round i the first 2^i workers, counted from ``root``, send to the next 2^i.
    """
    sent = [0] * workers
    for number in range(1, workers):
        sent[number - (1 << (number.bit_length() - 1))] += 1
    counted = [sent[(worker - root) % workers] for worker in range(workers)]
    return [(count * num_bytes, num_bytes * (worker != root)) for worker, count in enumerate(counted)]
