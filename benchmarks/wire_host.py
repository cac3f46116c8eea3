"""One host of the benchmark wire.py: runs its jobs and reports the bytes charged by the communicator.

An *exchange* is the communicator's gather on CPUs: each process sends a tensor to all others, in a call of
``batch_isend_irecv`` that may contain several tensors.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.compress import Case, Reduction, gradients, resnet18_layout
from benchmarks.fleet import open_channel
from compressors.api import Segment
from compressors.encoding.settings import Encoding
from trainers.comm.communicator import Communicator
from trainers.launch.process_group import process_group
from trainers.settings import ALL_REDUCE

COLLECTIVES = ("all_reduce", "exchange")
TINY, TINY_CALLS = 8, 20  # fp32 elements of an almost empty call, and the number of such calls
DENSE = 11_173_962  # elements of ResNet-18
PROBES = Path("/proc/sys/net/ipv4/tcp_early_retrans")  # probes for tail losses, per network namespace


def tiny_calls(communicator: Communicator) -> dict[str, Callable[[], object]]:
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


def run_job(job: dict[str, Any]) -> Communicator:
    """Run the steps of a job; returns the communicator that charged them."""
    processes = dist.get_world_size()
    communicator = Communicator(
        processes,
        rank=dist.get_rank(),
        world_size=processes,
        reduction=job.get("reduction", ALL_REDUCE),
    )
    if job["work"] == "reduce":
        reduce(job, communicator)
    elif job["work"] != "nothing":
        call = tiny_calls(communicator)[job["work"]]
        for _ in range(TINY_CALLS):
            call()
    return communicator


def reduce(job: dict[str, Any], communicator: Communicator) -> None:
    """Steps with new normal gradients and residuals of zero."""
    flat, segments = buffers(job["scope"])
    case = Case(job["method"], job["settings"])
    reduction = Reduction(
        case.reducer(job["density"], DENSE, Encoding(**job["wire"])), segments, communicator
    )
    stream = torch.Generator().manual_seed(communicator.rank)
    for _ in range(job["steps"]):
        flat.normal_(generator=stream)
        reduction.clear_residual()
        reduction()


@cache
def buffers(scope: str) -> tuple[Tensor, list[Segment]]:
    """A gradient [1, D] and its segments, for all jobs of a scope."""
    return gradients(resnet18_layout(scope), 1, DENSE)


def main() -> None:
    channel = open_channel()
    # Otherwise TCP sends a segment again if the other host acknowledges it late.
    PROBES.write_text("0", encoding="ascii")
    torch.set_num_threads(1)
    with process_group(torch.device("cpu"), timeout_seconds=600):
        calls: Counter[str] = count_calls()
        channel.send(at="ready")
        while (job := channel.receive()).get("work") is not None:
            calls.clear()
            communicator = run_job(job)
            ((sent, received),) = communicator.take_link_bytes().tolist()
            handed_over = int(communicator.take_charges().sum())
            channel.send(handed_over=handed_over, sent=sent, received=received, calls=dict(calls))


if __name__ == "__main__":
    main()
