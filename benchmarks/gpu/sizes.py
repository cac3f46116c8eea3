"""Sizes of the measured vectors, and the copy used for comparison."""

import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.gpu.measuring import Options, Record, Times, free_bytes, milliseconds
from compressors.api import Input, Segment
from trainers.step.layout import WHOLE

SIZES = {"11 M": 11_173_962, "100 M": 100_000_000, "1 B": 1_000_000_000}
QUICK = {"tiny": 9_000}
DENSITY = 0.001
SELECTED = 12  # bytes per entry: e and g are read, p is written


def sizes_of(options: Options) -> dict[str, int]:
    return QUICK if options.quick else SIZES


def threshold_of(density: float) -> float:
    """The magnitude that a fraction ``density`` of standard normal draws exceeds."""
    return -statistics.NormalDist().inv_cdf(density / 2)


def whole(rows: Tensor, memory: Tensor | None = None) -> Input:
    return Input(Segment(WHOLE, rows, ((rows.shape[1],),)), memory)


def fits(options: Options, record: Record, label: str, num_bytes: int) -> bool:
    """Whether the device has enough free memory; if not, a row states it."""
    free = free_bytes(options.device)
    if num_bytes > free:
        needed = f"{num_bytes / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} are free"
        record("not measured", what=label, reason=f"needs {needed}")
    return num_bytes <= free


class Yardstick:
    """A copy on the device as reference, and a function that overwrites the caches before a measurement."""

    def __init__(self, options: Options, num_bytes: int) -> None:
        self.options = options
        self.source = torch.empty(num_bytes // 2, dtype=torch.uint8, device=options.device)
        self.target = torch.empty_like(self.source)
        self.cache = torch.empty(2**10 if options.quick else 2**28, dtype=torch.uint8, device=options.device)

    def copy_milliseconds(self) -> float:
        return self.time(lambda: self.target.copy_(self.source)).median

    def time(self, work: Callable[[], object], before: Callable[[], object] = lambda: None) -> Times:
        def all_before() -> None:
            before()
            self.cache.zero_()

        rounds, seconds = (2, 0.05) if self.options.quick else (50, 1.0)
        return milliseconds(work, self.options.device, all_before, rounds=rounds, seconds=seconds)
