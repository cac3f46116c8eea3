"""What the GPU's kernels and every method reach of its memory bandwidth. It needs a GPU and triton.

    python -m benchmarks.kernels_cuda [--device cuda|cpu] [--quick] [--seconds 240]

Fp32 vectors of 11 M, 100 M and 1 B entries, one segment of one worker. The yardstick is a copy that moves as
many bytes as the work does by its definition, whatever it moves in fact: 12 for each entry for a selection
with its error (e and g are read, p is written), 16 for a reduction with feedback (the mean is written too),
8 for one without. "mark" is the one kernel that adds, marks and sums; "select" all that a step does, its wait
for the count included. Times are the device's own, medians; caches are overwritten before each. `make gpu`
runs this among its parts. On a CPU (for tests) the kernels run in Triton's interpreter, the methods in what
a CPU has.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.machine import datasheet_bandwidth
from benchmarks.gpu.measuring import (
    Options,
    Record,
    free_bytes,
    kernel_milliseconds,
    lone_group,
    milliseconds,
)
from compressors.api import Codec, Input, Segment, Step, elements_of
from compressors.backends import Backend
from compressors.hard_threshold import HardThreshold
from compressors.random_k import RandomK
from compressors.top_k import TopK
from trainers.communicator import Communicator
from trainers.layout import WHOLE

SIZES = {"11 M": 11_173_962, "100 M": 100_000_000, "1 B": 1_000_000_000}
QUICK = {"tiny": 9_000}
DENSITY = 0.001
SELECTED = 12  # bytes of an entry: e and g read, p written
MANY_ROWS = (8, 3)  # of 1 B entries each, more than 2^31 together; the first number that there is room for
TOPK = "torch.topk(p.abs(), k)"


def threshold_of(density: float) -> float:
    """The magnitude that a share ``density`` of standard normal draws exceeds."""
    return -statistics.NormalDist().inv_cdf(density / 2)


def sizes_of(options: Options) -> dict[str, int]:
    return QUICK if options.quick else SIZES


def whole(rows: Tensor, memory: Tensor | None = None) -> Input:
    return Input(Segment(WHOLE, rows, ((rows.shape[1],),)), memory)


def fits(options: Options, record: Record, label: str, num_bytes: int) -> bool:
    """Whether the device has room; a row says where it has none."""
    free = free_bytes(options.device)
    if num_bytes > free:
        needed = f"{num_bytes / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} are free"
        record("not measured", what=label, reason=f"needs {needed}")
    return num_bytes <= free


class Yardstick:
    """A copy on the device, and caches that hold something else before each measurement."""

    def __init__(self, options: Options, num_bytes: int) -> None:
        self.options = options
        self.source = torch.empty(num_bytes // 2, dtype=torch.uint8, device=options.device)
        self.target = torch.empty_like(self.source)
        self.cache = torch.empty(2**10 if options.quick else 2**28, dtype=torch.uint8, device=options.device)

    def copy_milliseconds(self) -> float:
        return self.time(lambda: self.target.copy_(self.source)).median

    def time(self, work: Callable[[], object], before: Callable[[], object] = lambda: None) -> Any:
        def all_before() -> None:
            before()
            self.cache.zero_()

        rounds, seconds = (2, 0.05) if self.options.quick else (50, 1.0)
        return milliseconds(work, self.options.device, all_before, rounds=rounds, seconds=seconds)


def measure_kernels(options: Options, record: Record) -> None:
    """The kernels by themselves, ``torch.topk`` and PowerSGD beside them; what they select, checked."""
    for label, size in sizes_of(options).items():
        if fits(options, record, f"kernels at {label}", 48 * size + 2**29):
            _measure_size(options, record, label, size)
            _check_size(options, record, label, size)
    _check_many(options, record)
    with lone_group(options.device):
        for label, size in sizes_of(options).items():
            if fits(options, record, f"PowerSGD at {label}", 20 * size):
                _measure_power_sgd(options, record, label, size)


def _measure_size(options: Options, record: Record, label: str, size: int) -> None:
    from compressors.kernels import triton_blocks as blocks
    from compressors.kernels.device_table import DeviceTable
    from compressors.kernels.gpu import APART, GpuKernels

    device = options.device
    gradient = torch.randn(1, size, device=device)
    rest = torch.zeros_like(gradient)
    given = whole(gradient, rest)
    yardstick, kernels, table = Yardstick(options, SELECTED * size), GpuKernels(), DeviceTable([given])
    table.point([given])
    keys = torch.full((1,), threshold_of(DENSITY), device=device).view(torch.int32)
    factor = torch.ones(1, device=device)

    def mark() -> None:
        found = (keys, table.rows, table.masks, table.sums, table.wholes, table.counts)
        grid = (len(table.counts),)
        blocks.mark[grid](table.pieces, factor, *found, RULE=blocks.AT_LEAST.value, ADD=True, **APART)

    def select(codec: Codec) -> Callable[[], object]:
        return lambda: kernels.compress([codec], [given], Step(0, 0), range(1))

    work: dict[str, Callable[[], object]] = {
        "add": lambda: rest.add_(gradient),
        "mark, threshold 0.1 %": mark,
        "select, threshold 0.1 %": select(HardThreshold(threshold=threshold_of(DENSITY))),
        "select, threshold 10 %": select(HardThreshold(threshold=threshold_of(0.1))),
        "select, Top-k 0.1 %": select(TopK(density=DENSITY)),
        "select, Top-k 1 %": select(TopK(density=0.01)),
        "select, random 0.1 %": select(RandomK(density=DENSITY)),
        TOPK: lambda: torch.topk(gradient[0].abs(), elements_of(DENSITY, size)),
    }
    copied = yardstick.copy_milliseconds()
    sold = datasheet_bandwidth(torch.cuda.get_device_name(device)) if device.type == "cuda" else None

    def of_bandwidth(ms: float) -> dict[str, float]:
        speed = SELECTED * size / ms / 1e6
        found = {"gigabytes_per_second": speed, "share_of_copy": copied / ms}
        return found | ({"share_of_datasheet": speed / sold} if sold else {})

    record("bandwidth", size=label, work="copy", ms=copied, **of_bandwidth(copied))
    taken = {name: yardstick.time(one, rest.zero_) for name, one in work.items()}
    for name, times in taken.items():
        row = {"ms": times.median, "lowest_ms": times.lowest, "highest_ms": times.highest}
        if name != TOPK:  # not the same work
            row |= of_bandwidth(times.median)
        row["times_faster_than_topk"] = taken[TOPK].median / times.median
        if name.startswith("select"):
            rest.zero_()
            each = kernel_milliseconds(work[name], device)
            if each:
                row["kernels_ms"] = sum(each.values())
                for kernel, own in list(each.items())[:12]:
                    record("kernels", size=label, work=name, kernel=kernel[:60], ms=own)
        record("bandwidth", size=label, work=name, **row)


def _check_size(options: Options, record: Record, label: str, size: int) -> None:
    """The kernels' payload, remainder, error and norm beside the reference's, on the device, bit for bit."""
    from compressors.kernels.gpu import GpuKernels

    gradient = torch.randn(1, size, device=options.device)
    for codec in (HardThreshold(threshold=threshold_of(DENSITY)), TopK(density=DENSITY)):
        found = []
        for backend in (GpuKernels(), Backend()):
            # Nothing is rounded in 0 + 1 g, so that it does not matter whether that is one operation or two.
            rest = torch.zeros_like(gradient)
            (own,) = backend.compress([codec], [whole(gradient, rest)], Step(0, 0), range(1))
            (payload,) = own.payloads
            found.append([payload.values, payload.indices, own.error, own.input_norm, rest])
        same = [torch.equal(ours, reference) for ours, reference in zip(*found, strict=True)]
        names = ("values", "indices", "error", "norm", "remainder")
        differ = [name for name, equal in zip(names, same, strict=True) if not equal]
        what = f"{type(codec).__name__} at {label}, beside the reference on the device"
        record("checks", what=what, result="equal" if not differ else f"differ: {', '.join(differ)}")


def _check_many(options: Options, record: Record) -> None:
    """As many rows as there is room for."""
    size = QUICK["tiny"] if options.quick else SIZES["1 B"]
    for num_rows in MANY_ROWS[1:] if options.quick else MANY_ROWS:
        if fits(options, record, f"{num_rows} rows of {size:,}", 10 * num_rows * size):
            _check_planted(options, record, num_rows, size)
            break


def _check_planted(options: Options, record: Record, num_rows: int, size: int) -> None:
    """A few entries among zeros are found, in rows that together have more than 2^31 entries."""
    from compressors.kernels.gpu import GpuKernels

    device, kernels = options.device, GpuKernels()
    edges = {0, 1, 255, 256, 4095, 4096, size // 2, size - 257, size - 1}
    at = torch.tensor(sorted(edges), device=device)
    signs = torch.arange(len(at), device=device) % 2 * 2.0 - 1
    gradient = torch.zeros(num_rows, size, device=device)
    rest = torch.zeros_like(gradient)
    what = f"in {num_rows} rows of {size:,}, {num_rows * size:,} entries"

    def look(codec: Codec, expected: Tensor, values: Tensor, norm: int) -> None:
        (own,) = kernels.compress([codec], [whole(gradient, rest)], Step(0, 0), range(num_rows))
        (payload,) = own.payloads
        left = own.error.flatten().tolist() == num_rows * [norm - len(values)]
        fine = (
            torch.equal(payload.indices.long(), expected.repeat(num_rows))
            and torch.equal(payload.values, values.repeat(num_rows))
            and own.input_norm.flatten().tolist() == num_rows * [norm]
            and left
        )
        record("checks", what=f"{type(codec).__name__} {what}", result="found" if fine else "WRONG")

    gradient[:, at] = signs
    look(HardThreshold(threshold=0.5), at, signs, len(at))
    rest.zero_()
    look(TopK(density=(len(at) + 0.5) / size), at, signs, len(at))
    gradient.fill_(1.0)  # whose squares add up exactly
    rest.zero_()
    codec, step = RandomK(density=DENSITY), Step(0, 0, segment=WHOLE)
    drawn = torch.from_numpy(codec.rule(size, step, range(1)).positions[0]).to(device)
    look(codec, drawn, torch.ones(len(drawn), device=device), size)


class _Bucket:
    """As much of DistributedDataParallel's bucket as PowerSGD's hook asks for."""

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
    """torch's hook, rank 4, on ResNet-18's tensors, as often as the size needs them."""
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

    for _ in range(3):  # it begins with plain all-reduces
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


def measure_methods(options: Options, record: Record) -> None:
    """One reduction of every method in conf/compressor, the smallest size first, until the time is over."""
    from benchmarks.compress import cases

    seconds: dict[str, float] = {}  # that each took at 100 M, to know what 1 B will take at most
    for label, size in sizes_of(options).items():
        if not fits(options, record, f"methods at {label}", 40 * size + 2**29):
            continue
        drawn = torch.randn(1, size, device=options.device)
        copied = Yardstick(options, 2 * 8 * size).copy_milliseconds() / 16  # per byte of an entry
        beside = Yardstick(options, 2)
        k = elements_of(DENSITY, size)
        topk = beside.time(lambda drawn=drawn, k=k: torch.topk(drawn[0].abs(), k)).median
        for case in cases():
            name = f"{case} at {label}"
            expected = seconds.get(str(case), 0.0) * size / SIZES["100 M"]
            if options.seconds_left < expected + 2:
                record("not measured", what=name, reason="the part's time was over")
                continue
            started = time.monotonic()
            try:
                row = _method(options, beside, case, drawn)
            except torch.OutOfMemoryError as error:
                record("not measured", what=name, reason=str(error).splitlines()[0])
                torch.cuda.empty_cache()
                continue
            if label == "100 M":
                seconds[str(case)] = time.monotonic() - started
            share = row["bytes_an_entry"] * copied / row["ms"]
            record(
                "methods",
                size=label,
                method=str(case),
                **row,
                share_of_copy=share,
                times_faster_than_topk=topk / row["ms"],
            )


def _method(options: Options, yardstick: Yardstick, case: Any, drawn: Tensor) -> dict[str, float]:
    from benchmarks.compress import Reduction

    flat = drawn.clone()
    size = flat.shape[1]
    reducer = case.reducer(DENSITY, size)
    communicator = Communicator(1, device=options.device)
    reduction = Reduction(reducer, [Segment(WHOLE, flat, ((size,),))], communicator)

    def before() -> None:
        flat.copy_(drawn)  # a method may leave the mean there
        reduction.forget()

    times = yardstick.time(reduction, before)
    return {
        "ms": times.median,
        "lowest_ms": times.lowest,
        "highest_ms": times.highest,
        "elements_sent": reduction.elements_sent,
        "bytes_an_entry": 16.0 if reducer.keeps_residual else 8.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=240.0)
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("error: this benchmark needs a GPU that torch can use")
    if arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    from benchmarks.gpu.page import tables

    rows: list[dict[str, Any]] = []

    def record(table: str, /, **row: object) -> None:
        rows.append({"table": table, **row})

    device = torch.device(arguments.device)
    torch.manual_seed(0)
    options = Options(device, arguments.quick, time.monotonic() + arguments.seconds)
    for measure in (measure_kernels, measure_methods):
        measure(options, record)
    print("\n".join(tables(rows)))


if __name__ == "__main__":
    main()
