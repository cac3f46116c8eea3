"""One reduction of every method in conf/compressor, compared with a copy and ``torch.topk``."""

import time

import torch
from torch import Tensor

from benchmarks.compress import Case, Reduction, cases
from benchmarks.gpu.measuring import Options, Record, attempt
from benchmarks.gpu.sizes import DENSITY, SIZES, Yardstick, fits, sizes_of
from compressors.api import Segment, elements_of
from compressors.kernels import choice
from trainers.comm.communicator import Communicator
from trainers.step.layout import WHOLE

WITH_FEEDBACK, WITHOUT = 16.0, 8.0  # bytes per entry: e, g and p, or only g; and the mean


def measure(options: Options, record: Record) -> None:
    """Measure all methods, the smallest size first, until the time is over."""
    record("backend", compression_by=choice.describe(options.device))
    seconds: dict[str, float] = {}  # seconds of each method at 100 M, to estimate those at 1 B
    for label, size in sizes_of(options).items():
        if fits(options, record, f"methods at {label}", 40 * size + 2**29):
            _measure_size(options, record, label, size, seconds)


def _measure_size(options: Options, record: Record, label: str, size: int, seconds: dict[str, float]) -> None:
    drawn = torch.randn(1, size, device=options.device)
    copied = Yardstick(options, 16 * size).copy_milliseconds() / 16  # per byte of an entry
    yardstick = Yardstick(options, 2)
    k = elements_of(DENSITY, size)
    topk = yardstick.time(lambda: torch.topk(drawn[0].abs(), k)).median

    def measure(case: Case) -> None:
        row = _times(options, yardstick, case, drawn)
        share = row["bytes_an_entry"] * copied / row["ms"]
        beside = {"share_of_copy": share, "times_faster_than_topk": topk / row["ms"]}
        record("methods", size=label, method=str(case), **row, **beside)

    for case in cases():
        name = f"{case} at {label}"
        expected = seconds.get(str(case), 0.0) * size / SIZES["100 M"]
        if options.seconds_left < expected + 2:
            record("not measured", what=name, reason="the part's time was over")
            continue
        started = time.monotonic()
        attempt(record, name, lambda case=case: measure(case))
        if label == "100 M":
            seconds[str(case)] = time.monotonic() - started


def _times(options: Options, yardstick: Yardstick, case: Case, drawn: Tensor) -> dict[str, float]:
    flat = drawn.clone()
    size = flat.shape[1]
    reducer = case.reducer(DENSITY, size)
    communicator = Communicator(1, device=options.device)
    weights = [200 * drawn[0]]  # of which a gradient changes about half after a cast to bfloat16
    reduction = Reduction(reducer, [Segment(WHOLE, flat, ((size,),), weights)], communicator)

    def before() -> None:
        flat.copy_(drawn)  # a method may write the mean into the gradients
        reduction.clear_residual()

    times = yardstick.time(reduction, before)
    return {
        "ms": times.median,
        "lowest_ms": times.lowest,
        "highest_ms": times.highest,
        "elements_sent": reduction.elements_sent,
        "bytes_an_entry": WITH_FEEDBACK if reducer.keeps_residual else WITHOUT,
    }
