"""Measured processor time, bytes and rounds of methods for the parameters of a model."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import Reducer, Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.core.checks import is_count, is_real, require
from compressors.feedback.error_feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.powersgd import PowerSGD
from compressors.top_k import TopK
from trainers.comm.clock import now
from trainers.comm.communicator import Communicator
from trainers.launch.memory import require_memory
from trainers.network_model.step_times import Cost, Line
from trainers.step.layout import Layout

MANY = 3  # workers in the second measurement, from which the cost per further worker follows
UNCOUNTED = 2  # first steps, not measured because kernels are loaded in them


class Part(NamedTuple):
    """Costs of one step of a reducer."""

    seconds: float  # of one worker, without communication
    rounds: int
    all_reduced_bytes: float  # handed over by a worker
    gathered_bytes: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the methods that are compared. Raises ``ValueError`` for settings out of range."""

    density: float = 0.001  # of Top-k, and the share of entries above the threshold
    rank: int = 2  # of PowerSGD
    steps: int = 5  # measured steps; a cost is their median

    def __post_init__(self) -> None:
        require(is_real(self.density) and 0 < self.density < 1, "density", "in (0, 1)", self.density)
        require(is_count(self.rank), "rank", "an integer >= 1", self.rank)
        require(is_count(self.steps), "steps", "an integer >= 1", self.steps)

    def __str__(self) -> str:
        return (
            f"Top-k and a threshold that send {self.density:.3g} of the entries, "
            f"PowerSGD of rank {self.rank}, compression measured with 1 and {MANY} workers"
        )


def measure_costs(layout: Layout, settings: Settings) -> list[Cost]:
    """Costs of dense training, torch's fp16 hook, Top-k, hard threshold and PowerSGD on this machine.

    The compressors run with error feedback. Their inputs p are normally distributed, and the threshold is set
    so that ``density`` is the share of entries above it. Raises ``ValueError`` if the measurement takes more
    memory than a CPU machine has.
    """
    size = layout.num_parameters
    if layout.device.type == "cpu":
        require_memory(3 * MANY * layout.num_bytes, "gradients, residuals and inputs")
    threshold = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(1 - settings.density / 2)).item()
    methods: dict[str, Reducer] = {
        "top_k": build_reducer(TopK(density=settings.density), size, ErrorFeedback),
        "hard_threshold": build_reducer(HardThreshold(threshold=threshold), size, ErrorFeedback),
        "powersgd": build_reducer(PowerSGD(rank=settings.rank), size, ErrorFeedback),
    }
    found = [  # DistributedDataParallel divides by n; torch's fp16_compress_hook sends fp16
        _all_reduced("dense", layout.num_bytes, lambda own: own.div_(2), layout, settings.steps),
        _all_reduced(
            "fp16",
            2.0 * size,
            lambda own: own.copy_(own.to(torch.float16).div_(2)),
            layout,
            settings.steps,
        )._replace(backend_weight=2.0 if layout.device.type == "cpu" else 1.0),
    ]
    for name, reducer in methods.items():
        one, many = (_part_of(reducer, layout, workers, settings.steps) for workers in (1, MANY))
        seconds, rounds = _line(one.seconds, many.seconds), _line(one.rounds, many.rounds)
        found.append(Cost(name, many.all_reduced_bytes, many.gathered_bytes, seconds, rounds))
    return found


def _line(one: float, many: float) -> Line:
    # Noise could make the time of many workers shorter than that of one.
    return Line(one, max(0.0, many - one) / (MANY - 1))


@torch.inference_mode()
def _part_of(reducer: Reducer, layout: Layout, workers: int, steps: int) -> Part:
    """Median costs of a reducer's steps with ``workers`` workers in this process."""
    device = layout.device
    communicator = Communicator(workers, device=device)
    communicator.declare_kinds(reducer.kinds)
    generator = torch.Generator(device).manual_seed(0)
    buckets = _buckets(layout, workers)
    state = reducer.init([segment for bucket in buckets for segment in bucket.segments])
    residual: dict[str, Tensor] = {}
    parts = []
    with _counting_all_reduces(communicator) as all_reduced:
        for number in range(UNCOUNTED + steps):
            seconds, rounds = 0.0, 0
            for gradients, segments in buckets:
                gradients.normal_(generator=generator)
                for segment in segments:  # so that p = e + g is normal in every step
                    if segment.name in residual:
                        segment.rows.sub_(residual[segment.name])
                communicator.clock.restart(exact=device.type == "cuda")
                started = now(device)
                reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, number), communicator)
                ended = now(device)
                seconds += communicator.clock.compression_seconds(ended - started, ended, workers)
                rounds += communicator.clock.rounds
                residual |= reduced.residual
            handed = communicator.take_charges().sum(1).mean().item()
            summed = sum(all_reduced) / workers
            all_reduced.clear()
            communicator.take_link_bytes()
            communicator.take_largest_sent()
            parts.append(Part(seconds, rounds, summed, handed - summed))
    return Part(*(statistics.median(column) for column in zip(*parts[UNCOUNTED:], strict=True)))


@contextmanager
def _counting_all_reduces(communicator: Communicator) -> Iterator[list[int]]:
    """Context manager: the list of bytes of all rows handed to all-reduces, one number per call."""
    counted: list[int] = []
    all_reduce_mean = communicator.all_reduce_mean

    def counting(rows: list[Tensor], add_up: object = None, kind: str = "values") -> list[Tensor]:
        counted.append(sum(tensor.nbytes for tensor in rows))
        return all_reduce_mean(rows, add_up, kind)  # type: ignore[arg-type]  # passed on

    communicator.all_reduce_mean = counting  # type: ignore[method-assign]
    yield counted


def _all_reduced(
    name: str, num_bytes: float, work: Callable[[Tensor], object], layout: Layout, steps: int
) -> Cost:
    """Cost of an all-reduce of ``num_bytes`` per worker, with ``work`` on every bucket's gradients."""
    buckets = _buckets(layout, 1)
    taken = []
    for _ in range(UNCOUNTED + steps):
        started = now(layout.device)
        for gradients, _ in buckets:
            work(gradients)
        taken.append(now(layout.device) - started)
    seconds = statistics.median(taken[UNCOUNTED:])
    return Cost(name, num_bytes, 0.0, Line(seconds), Line(0.0, 2.0 * len(buckets)))


class _Bucket(NamedTuple):
    """Gradients [W, d] that are reduced together, and segments that are views of them."""

    gradients: Tensor
    segments: list[Segment]


def _buckets(layout: Layout, workers: int) -> list[_Bucket]:
    """Zeroed gradients of all parameters, a bucket for each dtype; DDP also divides them by size."""
    if layout.scope == "global":
        flat = layout.new_buffer(workers)
        return [_Bucket(flat, layout.segments(flat))]
    by_dtype: dict[torch.dtype, list[str]] = {}
    for name, parameter in layout.parameters.items():
        by_dtype.setdefault(parameter.dtype, []).append(name)
    buckets = []
    for dtype, names in by_dtype.items():
        sizes = [layout.parameters[name].numel() for name in names]
        flat = torch.zeros(workers, sum(sizes), dtype=dtype, device=layout.device)
        views = zip(names, flat.split(sizes, dim=1), strict=True)
        buckets.append(_Bucket(flat, [layout.segment_of(name, rows) for name, rows in views]))
    return buckets
