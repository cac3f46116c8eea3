"""The gradient part of a training step: compute, compress, communicate, write the mean to ``.grad``."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import Reducer, State, Step, inputs_of
from data.protocols import Batches, Carry
from trainers.comm.clock import now
from trainers.comm.communicator import Communicator
from trainers.step.gradients import GradientSource, encode_fault
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger


class StepTimes(NamedTuple):
    """Seconds of the parts of a gradient step."""

    gradient_seconds: float
    reduce_seconds: float
    communication_seconds: float  # part of reduce_seconds in collectives
    compression_seconds: float | None  # of one worker; None if it cannot be measured
    num_buckets: int  # parts in which the gradient is reduced, one after the other


class Reduction(NamedTuple):
    """Results of a gradient step, beside the mean in every ``.grad``."""

    losses: Tensor | None  # [W], if requested
    times: StepTimes
    fault: int | None  # of this process, for ``raise_together``; None: gradients were checked before


@dataclass(eq=False)
class ExplicitStep:
    """All gradients first, then one reduction; for any number of workers per process and any scope.

    ``run`` writes the mean of C(p) to every ``.grad``, and records its segments in the ledger. With nodes
    in the ledger the reducer gets their means, and ``communicator`` is that across the nodes.
    """

    workers: GradientSource
    reducer: Reducer
    layout: Layout
    communicator: Communicator
    ledger: Ledger
    _: KW_ONLY
    seed: int

    def __post_init__(self) -> None:
        segments, nodes = self.workers.segments, self.ledger.nodes
        with torch.inference_mode():
            self.state: State = self.reducer.init(segments if nodes is None else nodes.first(segments))
        self.num_segments = len(self.workers.segments)

    @property
    def measured(self) -> Mapping[str, float]:
        """Metrics of the last step with ``measure``, for its record."""
        return self.workers.measured

    @property
    def carries(self) -> list[list[Carry]]:
        """State of each local worker's loss between batches, per micro-batch."""
        return self.workers.carries

    def run(
        self, batches: Batches, step: int, learning_rate: float, measure: bool = True, epoch: float = 0.0
    ) -> Reduction:
        """Compute and reduce the local workers' gradients; the caller closes the step in the ledger.

        ``epoch`` is the fractional epoch before the step. ``measure`` requests the losses. Raises
        ``NonFiniteGradientError`` on all processes if a check before the reduction finds a gradient that is
        not finite.
        """
        started = now(self.layout.device)
        losses, segments = self.workers.compute(batches, step, measure), self.workers.segments
        if self.ledger.nodes is not None:
            with torch.inference_mode():
                segments = self.ledger.nodes.means(segments)
        computed = now(self.layout.device)
        clock = self.communicator.clock
        clock.restart(exact=self.layout.device.type == "cuda")
        reducer_step = Step(
            *(self.seed, step, learning_rate, epoch),
            local_rate=self.workers.local_rate,
            fragments=self.workers.num_fragments,
        )
        with torch.inference_mode():  # avoids autograd's overhead, a seventh of a step with small tensors
            inputs = inputs_of(segments)
            if len(inputs) < self.num_segments:
                self.ledger.begin_part([given.name for given in inputs])
            reduced, self.state = self.reducer.reduce(inputs, self.state, reducer_step, self.communicator)
            self.layout.write_gradients(reduced.mean)
            self.ledger.record(reduced)
        ended = now(self.layout.device)
        reduce_seconds, num_workers = ended - computed, len(self.communicator.local_workers)
        own = clock.compression_seconds(reduce_seconds, ended, num_workers)
        times = StepTimes(computed - started, reduce_seconds, clock.seconds, own, num_buckets=1)
        return Reduction(losses, times, None if self.workers.checks else fault_of(self.ledger))


def sees_faults(ledger: Ledger) -> bool:
    """Whether the norms of p show all values that are not finite, and whose they are.

    False for float64, because squares of finite entries can overflow, on a GPU, because reading the norms
    would wait for its kernels, and for nodes, whose p has values of several workers.
    """
    layout = ledger.layout
    return (layout.device.type, layout.dtype) == ("cpu", torch.float32) and ledger.nodes is None


def fault_of(ledger: Ledger) -> int:
    """A positive number for a layer that is not finite in this step, or 0."""
    found = ledger.fault()
    if found is None:
        return 0
    row, layer = found
    return encode_fault(ledger.communicator.local_workers[row], layer, ledger.layout)
