"""One training step up to the gradient: compute, compress, communicate, write the mean to ``.grad``."""

import time
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from compressors.api import Context, Fault, Reducer
from trainers.communicator import Communicator
from trainers.gradients import GradientSource, encode_fault, raise_together
from trainers.layout import Layout
from trainers.ledger import Ledger


class GradientStep(Protocol):
    """Leaves the mean of what the workers sent in every ``.grad``, and the step in the ledger."""

    gradient_seconds: float
    reduce_seconds: float
    communication_seconds: float  # of those, in collectives
    compression_seconds: float | None  # of one worker; None where the clock cannot tell
    state: Any  # the reducer's; its tensors are [W, ...]
    memories: list[list[Any]]  # what each local worker's loss carries to its next batch, per micro-batch

    def run(
        self, batches: Any, step: int, learning_rate: float, measure: bool = True, epoch: float = 0.0
    ) -> Tensor | None:
        """Return the local workers' losses [W].

        ``epoch``, fractional, is what was done before. ``measure`` says whether the losses and ||p||^2 of
        this step are wanted.
        """


class ExplicitStep:
    """All gradients first, then one reduction: any number of workers per process, any scope."""

    def __init__(
        self,
        workers: GradientSource,
        reducer: Reducer,
        layout: Layout,
        communicator: Communicator,
        ledger: Ledger,
        *,
        seed: int,
    ) -> None:
        self.workers = workers
        self.reducer = reducer
        with torch.inference_mode():
            self.state = reducer.init(workers.segments)
        self.layout = layout
        self.communicator = communicator
        self.ledger = ledger
        self.seed = seed

    @property
    def memories(self) -> list[list[Any]]:
        return self.workers.memories

    def run(
        self, batches: Any, step: int, learning_rate: float, measure: bool = True, epoch: float = 0.0
    ) -> Tensor | None:
        started = self._now()
        losses = self.workers.compute(batches, step, measure)
        computed = self._now()
        clock = self.communicator.clock
        clock.restart(exact=self.layout.device.type == "cuda")
        refuse = None if self.workers.checks else partial(self._refuse, step)
        context = Context(self.seed, step, learning_rate, epoch=epoch, measure_input=measure, refuse=refuse)
        with torch.inference_mode():  # no autograd bookkeeping: a seventh of a step with small tensors
            segments = self.workers.segments
            reduced, self.state = self.reducer.reduce(segments, self.state, context, self.communicator)
            self.layout.write_gradients(reduced.mean)
            ended = self._now()
            self.gradient_seconds, self.reduce_seconds = computed - started, ended - computed
            self.communication_seconds = clock.seconds
            num_workers = len(self.communicator.ranks)
            self.compression_seconds = clock.compression_seconds(self.reduce_seconds, ended, num_workers)
            self.ledger.record(reduced)
            self.ledger.close_step()
        return losses

    def _refuse(self, step: int, faults: list[Fault]) -> None:
        """Raise ``NonFiniteGradientError`` on all processes if one has a fault."""
        first_of_rows = {fault.row: fault for fault in reversed(faults)}
        found = [number_of(fault, self.communicator, self.layout) for fault in first_of_rows.values()]
        with self.communicator.clock.collective(0):
            raise_together(self.communicator, self.layout, step, max(found, default=0))

    def _now(self) -> float:
        if self.layout.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def sees_faults(reducer: Reducer, layout: Layout) -> bool:
    """Whether a reducer is to look for what is not finite: where compiled loops do so on their way.

    Not in float64, whose squares overflow before its entries do.
    """
    plain = (layout.device.type, layout.dtype) == ("cpu", torch.float32)
    return plain and getattr(reducer, "checks_input", False)


def number_of(fault: Fault, communicator: Communicator, layout: Layout) -> int:
    position = layout.position(fault.segment, fault.layer)
    return encode_fault(communicator.ranks[fault.row], position, layout)
