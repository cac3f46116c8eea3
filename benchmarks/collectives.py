"""torch's collectives as the network's benchmarks see them: counted, and called with known traffic."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from trainers.break_even import all_reduce_traffic, gather_traffic

COLLECTIVES = ("all_reduce", "all_gather", "all_to_all_single")
TINY, TINY_CALLS = 8, 20  # fp32 elements of a call that carries next to nothing, and how many there are
DENSE = 11_173_962  # elements of a call next to which headers are small: ResNet-18's D


def traffic(collective: str, num_bytes: float, processes: int) -> float:
    """Bytes that leave a process which gives ``num_bytes`` to the collective, without headers."""
    return (all_reduce_traffic if collective == "all_reduce" else gather_traffic)(num_bytes, processes)


def tiny_calls(processes: int) -> dict[str, Callable[[], object]]:
    """A call of each of ``COLLECTIVES``, with ``TINY`` elements."""
    tiny = torch.ones(TINY)
    pieces, copies = [torch.empty_like(tiny) for _ in range(processes)], tiny.repeat(processes)
    return {
        "all_reduce": lambda: dist.all_reduce(tiny),
        "all_gather": lambda: dist.all_gather(pieces, tiny),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.empty_like(copies), copies),
    }


def count_calls() -> Counter[str]:
    """How often each collective is called from now on, by whomever."""
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(dist, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return original(*arguments, **options)

        return call

    for name in COLLECTIVES:
        setattr(dist, name, counted(name))
    return calls
