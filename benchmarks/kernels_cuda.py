"""Memory bandwidth reached by the GPU's kernels: the part ``bandwidth`` of `make gpu`.

    python -m benchmarks.gpu --parts bandwidth

The vectors have 11 M, 100 M and 1 B fp32 entries, one segment of one worker. The reference is a copy of as
many bytes as the operation moves by definition: 12 per entry for a selection with its error (e and g are
read, p is written). "mark" is the kernel that adds, marks and sums; "select" is the whole selection,
including the wait for the count, and "select from p" that from a p that is ready. A user of torch writes the
addition, the magnitudes, ``topk`` and a scatter; this is measured beside it. Times are medians of the
device's times; caches are overwritten before each measurement. On a CPU (for tests) the kernels run in
Triton's interpreter.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.gpu.goals import OF_READY
from benchmarks.gpu.machine import datasheet_bandwidth
from benchmarks.gpu.measuring import Options, Record, attempt, kernel_milliseconds, lone_group
from benchmarks.gpu.selection import check_many, check_size
from benchmarks.gpu.sizes import DENSITY, SELECTED, Yardstick, fits, sizes_of, threshold_of, whole
from compressors.api import Codec, Step, elements_of
from compressors.hard_threshold import HardThreshold
from compressors.random_k import RandomK
from compressors.top_k import TopK

TOPK = "torch.topk(p.abs(), k)"
OF_TORCH = f"add, abs, topk and scatter of torch {torch.__version__}"


def measure_kernels(options: Options, record: Record) -> None:
    """Measure the kernels, ``torch.topk`` and PowerSGD, and check what the kernels select."""
    steps = ((_measure_size, "kernels", 52), (check_size, "what the kernels select", 48))
    for work, what, bytes_an_entry in steps:
        for label, size in sizes_of(options).items():
            name = f"{what} at {label}"
            if fits(options, record, name, bytes_an_entry * size + 2**29):
                attempt(record, name, lambda w=work, la=label, s=size: w(options, record, la, s))
    attempt(record, "what the kernels select in many rows", lambda: check_many(options, record))
    with lone_group(options.device):
        for label, size in sizes_of(options).items():
            name = f"PowerSGD at {label}"
            if fits(options, record, name, 20 * size):
                attempt(record, name, lambda la=label, s=size: _measure_power_sgd(options, record, la, s))


def _measure_size(options: Options, record: Record, label: str, size: int) -> None:
    from compressors.kernels.gpu import blocks as blocks
    from compressors.kernels.gpu import taking as taking
    from compressors.kernels.gpu.backend import GpuKernels
    from compressors.kernels.gpu.table import DeviceTable

    device = options.device
    gradient = torch.randn(1, size, device=device)
    rest = torch.zeros_like(gradient)
    given = whole(gradient, rest)
    yardstick, kernels, table = Yardstick(options, SELECTED * size), GpuKernels(), DeviceTable([given])
    table.point([given])
    keys = torch.full((1,), threshold_of(DENSITY), device=device).view(torch.int32)
    factor = torch.ones(1, device=device)

    def mark() -> None:
        taking.mark(table, factor, keys, blocks.AT_LEAST)

    def select(codec: Codec) -> Callable[[], object]:
        return lambda: kernels.compress([codec], [given], Step(0, 0), range(1))

    k = elements_of(DENSITY, size)

    def by_torch() -> None:
        rest[0].add_(gradient[0])
        where = torch.topk(rest[0].abs(), k).indices
        rest[0].gather(0, where)
        rest[0].scatter_(0, where, 0)

    ready = torch.empty_like(gradient)
    work: dict[str, Callable[[], object]] = {
        "add": lambda: rest.add_(gradient),
        "mark, threshold 0.1 %": mark,
        "select, threshold 0.1 %": select(HardThreshold(threshold=threshold_of(DENSITY))),
        "select, threshold 10 %": select(HardThreshold(threshold=threshold_of(0.1))),
        "select, Top-k 0.1 %": select(TopK(density=DENSITY)),
        "select, Top-k 1 %": select(TopK(density=0.01)),
        "select, random 0.1 %": select(RandomK(density=DENSITY)),
        OF_READY: lambda: kernels.compress([TopK(density=DENSITY)], [whole(ready)], Step(0, 0), range(1)),
        TOPK: lambda: torch.topk(gradient[0].abs(), k),
        OF_TORCH: by_torch,
    }
    copied = yardstick.copy_milliseconds()
    sold = datasheet_bandwidth(torch.cuda.get_device_name(device)) if device.type == "cuda" else None

    def of_bandwidth(ms: float) -> dict[str, float]:
        speed = SELECTED * size / ms / 1e6
        found = {"gigabytes_per_second": speed, "share_of_copy": copied / ms}
        return found | ({"share_of_datasheet": speed / sold} if sold else {})

    record("bandwidth", size=label, work="copy", ms=copied, **of_bandwidth(copied))

    def before() -> None:
        rest.zero_()
        ready.copy_(gradient)

    taken = {name: yardstick.time(one, before) for name, one in work.items()}
    for name, times in taken.items():
        row = {"ms": times.median, "lowest_ms": times.lowest, "highest_ms": times.highest}
        if name not in (TOPK, OF_TORCH):  # other operations, for comparison
            row |= of_bandwidth(times.median)
        row["times_faster_than_topk"] = taken[TOPK].median / times.median
        if name in (OF_READY, "select, Top-k 0.1 %"):
            row |= {"times_faster_than_torch": taken[OF_TORCH].median / times.median, "torch": OF_TORCH}
        if name.startswith("select"):
            before()
            each = kernel_milliseconds(work[name], device)
            if each:
                row["kernels_ms"] = sum(each.values())
                for kernel, own in list(each.items())[:12]:
                    record("kernels", size=label, work=name, kernel=kernel[:60], ms=own)
        record("bandwidth", size=label, work=name, **row)


class _Bucket:
    """The part of DistributedDataParallel's bucket that PowerSGD's hook uses."""

    def __init__(self, buffer: Tensor, gradients: list[Tensor]) -> None:
        self._buffer, self._gradients = buffer, gradients

    def buffer(self) -> Tensor:
        return self._buffer

    def gradients(self) -> list[Tensor]:
        return self._gradients

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


def _measure_power_sgd(options: Options, record: Record, label: str, size: int) -> None:
    """Measure torch's hook with rank 4 on ResNet-18's tensors, repeated up to the size."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    from models.resnet import resnet18

    with torch.device("meta"):
        shapes = [p.shape for p in resnet18(input_shape=(3, 32, 32), num_classes=10).parameters()]
    if options.quick:
        shapes = [torch.Size([size // 100, 100])]
    of_model = sum(shape.numel() for shape in shapes)
    shapes = shapes * (size // of_model)
    drawn = torch.randn(sum(shape.numel() for shape in shapes), device=options.device)
    buffer = drawn.clone()
    pieces = buffer.split([shape.numel() for shape in shapes])
    gradients = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=4, start_powerSGD_iter=2, batch_tensors_with_same_shape=True
    )
    bucket = _Bucket(buffer, gradients)

    def reduce() -> None:
        powerSGD_hook.powerSGD_hook(state, bucket).wait()

    for _ in range(3):  # its first steps are plain all-reduces
        buffer.copy_(drawn)
        reduce()
    times = Yardstick(options, 2).time(reduce, lambda: buffer.copy_(drawn))
    record(
        "PowerSGD",
        size=label,
        elements=buffer.numel(),
        tensors=len(shapes),
        ms=times.median,
        lowest_ms=times.lowest,
        highest_ms=times.highest,
    )
