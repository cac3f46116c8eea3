"""Measured costs of a run's steps and of dense steps, and the break-even bandwidth that follows."""

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from compressors.api import Reducer, Segment, Step, inputs_of
from compressors.core.payloads import divide_all
from compressors.none import NoCompression
from trainers.comm.clock import now
from trainers.comm.communicator import Communicator
from trainers.comm.links import all_reduce_bytes
from trainers.network_model.break_even import COMPRESSION, NAME, ROUNDS, StepCost, break_even
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

STEPS = 1000  # number of last steps whose medians are computed
REHEARSALS, ROUND_TRIPS = 3, 11
LARGEST_REHEARSAL = 2**24  # elements; times of larger models are scaled up, to save memory


class TimedStep(Protocol):
    """A step whose compression is timed."""

    @property
    def compression_seconds(self) -> float | None:
        """Seconds of compression for one worker; None if they cannot be measured, or not yet."""

    @property
    def num_buckets(self) -> int:
        """Number of parts in which the gradient was reduced, one after the other."""


@dataclass(eq=False)
class StepCosts:
    """Costs of the steps that this process has taken, and of dense steps for comparison.

    ``dense_seconds``: processor time of a worker's dense step, by default that of ``compressor=none``.
    """

    reducer: Reducer
    layout: Layout
    communicator: Communicator
    dense_seconds: Callable[[Layout], float] | None = None

    def __post_init__(self) -> None:
        self.nothing_to_compare = self.reducer.traits.lossless or self.communicator.size == 1
        self.seconds: deque[float] = deque(maxlen=STEPS)
        self.rounds: deque[int] = deque(maxlen=STEPS)
        self.num_buckets = 1  # of the last step; DistributedDataParallel changes them after the first
        self.steps = 0
        self.leading_seconds: deque[float] = deque(maxlen=STEPS)  # of the steps that had any
        # Sums over steps: bytes that left a local worker (mean) and ``Clock.detour_bytes``; in dense steps
        self._sent = self._dense = 0.0

    def add(self, step: TimedStep, ledger: Ledger) -> None:
        """Record the last step."""
        if self.nothing_to_compare:
            return
        sent = ledger.counts.link_bytes[:, 0]
        clock = self.communicator.clock
        self._sent += sent.sum() / len(sent) + clock.detour_bytes  # takes half the time of mean()
        self._dense += float(ledger.counts.dense_bytes[0])
        if step.compression_seconds is not None:
            self.seconds.append(step.compression_seconds)
        self.rounds.append(clock.rounds)
        self.num_buckets = step.num_buckets
        if clock.leading_seconds:
            self.leading_seconds.append(clock.leading_seconds)
        self.steps += 1

    def summary(self) -> dict[str, float]:
        """Bandwidth, rounds and seconds of compression by metric name, equal on all processes; empty if
        dense, for one worker, and as long as a process has no times: a GPU's are read when it has finished a
        step.

        Times and rounds are medians over steps, of the slowest process; the first step is omitted because it
        loads kernels. Work of one worker counts in full if all others wait for it.
        """
        if self.nothing_to_compare or self.communicator.all_reduce_max(not self.seconds):
            return {}
        columns = self.seconds, self.rounds, self.leading_seconds or [0.0]
        seconds, rounds, leading = (list(column)[min(1, len(column) - 1) :] for column in columns)
        row = [
            statistics.median(seconds),
            (self.dense_seconds or seconds_of_none)(self.layout),
            round_seconds(self.communicator),
            statistics.median(leading),
            statistics.median(rounds),
            self._sent / self.steps,
        ]
        rows = self.communicator.collect(torch.tensor([row], dtype=torch.float64))  # [P, 6]
        own, rehearsed, latency, lead, in_sequence, _ = rows.max(0).values.tolist()
        workers, dense_bytes = self.communicator.size, self._dense / self.steps
        part = dense_bytes / all_reduce_bytes(self.layout.num_bytes, workers)  # of the layers, in a step
        compressed = StepCost(own + lead, in_sequence, rows[:, 5].mean().item())
        dense = StepCost(part * rehearsed, 2 * (workers - 1) * self.num_buckets, dense_bytes)
        bandwidth = break_even(compressed, dense, latency)
        return {NAME: bandwidth, ROUNDS: in_sequence, COMPRESSION: compressed.seconds}


def round_seconds(communicator: Communicator) -> float:
    """Seconds that a tiny message takes between two processes; 0 for one process."""
    if communicator.world_size == 1:
        return 0.0
    taken, number = [], torch.zeros(1)
    for _ in range(ROUND_TRIPS):
        started = time.perf_counter()
        communicator.sum(number).item()  # which waits for a GPU
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) / (2 * (communicator.world_size - 1))


class _Rehearsal:
    """A communicator whose all-reduce does all work except the transfer."""

    def all_reduce_mean(self, rows: list[Tensor], add_up: Callable[[Tensor], Tensor]) -> list[Tensor]:
        sums = [add_up(tensor) for tensor in rows]
        flat = torch.cat(sums)
        flat += flat
        return divide_all(list(flat.split([tensor.numel() for tensor in sums])), 2)


@torch.inference_mode()
def seconds_of_none(layout: Layout) -> float:
    """Seconds of processor time for a worker's step with ``compressor=none``, measured on zeros."""
    left, segments = LARGEST_REHEARSAL, []
    for name, size in zip(layout.names, layout.sizes, strict=True):
        rows = torch.zeros(1, min(size, left), dtype=layout.dtype, device=layout.device)
        segments.append(Segment(name, rows, ((rows.shape[1],),)))
        left -= rows.shape[1]
        if not left:
            break
    taken = []
    for _ in range(1 + REHEARSALS):
        started = now(layout.device)
        reduced = NoCompression().reduce(
            inputs_of(segments),
            (),
            Step(0, 0),
            _Rehearsal(),  # type: ignore[arg-type]  # a dense reduction calls only all_reduce_mean
        )
        taken.append(now(layout.device) - started)
        del reduced  # freed before the next round, as in a step
    covered = sum(segment.rows.shape[1] for segment in segments)
    return statistics.median(taken[1:]) * layout.num_parameters / covered
