"""What the GPU's kernels reach of its memory bandwidth. It needs a GPU and triton.

    python benchmarks/kernels_cuda.py [--rounds 50] [--workers 1]

Fp32 vectors of ResNet-18's size in one segment, one for each worker. The yardstick is a copy that moves as
many bytes as the work does by its definition: 12 for each entry (e and g are read, p is written). "fused
kernel" is the pass that adds, marks and sums, alone; "select" all that a step does, its wait for the count
included. Times are the device's own, medians of the rounds; caches are overwritten before each.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
import triton

from compressors.api import Codec, Input, Segment, Step, elements_of
from compressors.hard_threshold import HardThreshold
from compressors.kernels import triton_blocks as blocks
from compressors.kernels.device_table import DeviceTable
from compressors.kernels.gpu import APART, GpuKernels
from compressors.random_k import RandomK
from compressors.top_k import TopK

SIZE, GOAL = 11_173_962, 0.6
BYTES = 12  # of each entry: e and g read, p written


def milliseconds(work: Callable[[], object], before: Callable[[], object], rounds: int) -> float:
    """The median time between two events around ``work``, the first two rounds, which compile, left out."""
    taken = []
    for _ in range(rounds + 2):
        before()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end))
    return statistics.median(taken[2:])


def threshold_of(density: float) -> float:
    """The magnitude that a share ``density`` of standard normal draws exceeds."""
    return -statistics.NormalDist().inv_cdf(density / 2)


def measure(rounds: int, workers: int) -> None:
    """Print the table."""
    device = torch.device("cuda")
    gradient, rest = (torch.randn(workers, SIZE, device=device) for _ in range(2))
    given = Input(Segment("model", gradient, ((SIZE,),)), rest)
    moved = BYTES * rest.numel()
    source = torch.empty(moved // 2, dtype=torch.uint8, device=device)  # read once and written once
    target, cache = torch.empty_like(source), torch.empty(2**28, dtype=torch.uint8, device=device)
    kernels, table = GpuKernels(), DeviceTable([given])
    table.point([given])
    keys = torch.full((workers,), threshold_of(0.001), device=device).view(torch.int32)
    factor = torch.ones(1, device=device)

    def before() -> None:
        rest.zero_()
        cache.zero_()

    def fused() -> None:
        found = (keys, table.rows, table.masks, table.sums, table.wholes, table.counts)
        grid = (len(table.counts),)
        blocks.mark[grid](table.pieces, factor, *found, RULE=blocks.AT_LEAST.value, ADD=True, **APART)

    def select(codec: Codec) -> Callable[[], object]:
        return lambda: kernels.compress([codec], [given], Step(0, 0), range(workers))

    work = {
        "copy": lambda: target.copy_(source),
        "add": lambda: rest.add_(gradient),
        "fused kernel, threshold 0.1 %": fused,
        "select, threshold 0.1 %": select(HardThreshold(threshold=threshold_of(0.001))),
        "select, threshold 10 %": select(HardThreshold(threshold=threshold_of(0.1))),
        "select, Top-k 0.1 %": select(TopK(density=0.001)),
        "select, random 0.1 %": select(RandomK(density=0.001)),
        "torch.topk(p.abs(), k)": lambda: torch.topk(gradient.abs(), elements_of(0.001, SIZE)),
    }
    found = {name: milliseconds(one, before, rounds) for name, one in work.items()}
    print("| work | ms | MB by definition | GB/s | share of the copy's bandwidth | goal |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, taken in found.items():
        if name.startswith("torch.topk"):  # not the same work
            print(f"| {name} | {taken:.4f} |  |  |  |  |")
            continue
        goal = f"{GOAL:.0%}" if name.startswith("fused") else ""
        speed, share = moved / taken / 1e6, found["copy"] / taken
        print(f"| {name} | {taken:.4f} | {moved / 1e6:.1f} | {speed:.0f} | {share:.1%} | {goal} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("error: this benchmark needs a GPU that torch can use")
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, ", end="")
    print(f"{arguments.workers} worker(s), {arguments.rounds} rounds; {SIZE:,} fp32 entries each\n")
    measure(arguments.rounds, arguments.workers)


if __name__ == "__main__":
    main()
