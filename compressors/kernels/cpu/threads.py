"""Threads for loops that release the GIL; results do not depend on the division of work."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch

_SHARES = 4  # shares per thread, because parts have different lengths


def parallel_for(work: Callable[[int, int], object], num_parts: int) -> None:
    """Run ``work(first, last)`` over ``range(num_parts)`` by as many threads as torch uses."""
    threads = torch.get_num_threads()
    if threads == 1 or num_parts == 1:
        work(0, num_parts)
        return
    shares = min(num_parts, _SHARES * threads)
    edges = [num_parts * i // shares for i in range(shares + 1)]
    list(_pool(threads).map(work, edges[:-1], edges[1:]))


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "kernels")
