"""Counts of calls of collectives, and calls with known traffic, for the network benchmarks.

An *exchange* is the communicator's gather on CPUs: each process sends a tensor to all others, in a call of
``batch_isend_irecv`` that may contain several tensors.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from trainers.comm.communicator import Communicator

COLLECTIVES = ("all_reduce", "exchange")
TINY, TINY_CALLS = 8, 20  # fp32 elements of an almost empty call, and the number of such calls
DENSE = 11_173_962  # elements of a call whose headers are negligible: ResNet-18's D


def tiny_calls(communicator: "Communicator") -> dict[str, Callable[[], object]]:
    """A function per name in ``COLLECTIVES`` that calls it between all processes with ``TINY`` elements."""
    tiny = torch.ones(1, TINY)
    return {
        "all_reduce": lambda: communicator.all_reduce_mean([tiny], lambda rows: rows.sum(0)),
        "exchange": lambda: communicator.all_gather(tiny, "values"),
    }


def count_calls() -> Counter[str]:
    """Count all later calls of each collective."""
    calls: Counter[str] = Counter()
    all_reduce, batch = dist.all_reduce, dist.batch_isend_irecv

    def counted_all_reduce(*arguments: Any, **options: Any) -> Any:
        calls["all_reduce"] += 1
        return all_reduce(*arguments, **options)

    def counted_batch(operations: list[dist.P2POp]) -> Any:
        peers = dist.get_world_size() - 1
        calls["exchange"] += sum(operation.op is dist.isend for operation in operations) / peers
        return batch(operations)

    dist.all_reduce, dist.batch_isend_irecv = counted_all_reduce, counted_batch
    return calls
