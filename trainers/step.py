"""One training step up to the gradient: compute, compress, communicate, write the mean to ``.grad``."""

import time
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from compressors.api import Context, Fault, Reduced, Reducer
from trainers.communicator import Communicator
from trainers.ddp_hook import CompressionState, compression_hook
from trainers.forward import Loss, cut
from trainers.gradients import (
    GradientSource,
    buffers_seen_by_forward,
    encode_fault,
    raise_together,
    seed_worker,
)
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
        found = [_number(fault, self.communicator, self.layout) for fault in first_of_rows.values()]
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


def _number(fault: Fault, communicator: Communicator, layout: Layout) -> int:
    position = layout.position(fault.segment, fault.layer)
    return encode_fault(communicator.ranks[fault.row], position, layout)


class OverlappedStep:
    """DistributedDataParallel runs the reducer bucket by bucket, beside its backward pass.

    One worker per process, layer scope; a bucket holds ``bucket_megabytes`` of gradients, one parameter
    at least. ``gradient_seconds`` then contains what of the reduction
    the backward pass could not hide; ``reduce_seconds`` is the reducer's own time, hidden or not.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        reducer: Reducer,
        communicator: Communicator,
        ledger: Ledger,
        *,
        seed: int,
        micro_batch_size: int | None = None,
        bucket_megabytes: float = 25,
    ) -> None:
        self.loss = loss
        self.ledger = ledger
        self.seed = seed
        self.micro_batch_size = micro_batch_size
        self.memories: list[list[Any]] = [[]]
        self.communicator = communicator
        self.fault = 0
        self.shared_buffers = buffers_seen_by_forward(model)
        self.compression = CompressionState(
            reducer, model, seed=seed, communicator=communicator, inspect=self._inspect
        )
        self.compression.refuse = self._note if sees_faults(reducer, self.compression.layout) else None
        # DDP would send BatchNorm's statistics in every step; the evaluation needs them only.
        self.parallel = DistributedDataParallel(
            model, broadcast_buffers=False, gradient_as_bucket_view=True, bucket_cap_mb=bucket_megabytes
        )
        self.parallel.register_comm_hook(self.compression, compression_hook)

    @property
    def state(self) -> Any:
        return self.compression.state

    def run(
        self, batches: Any, step: int, learning_rate: float, measure: bool = True, epoch: float = 0.0
    ) -> Tensor | None:
        started = time.perf_counter()
        compression = self.compression
        compression.step, compression.learning_rate, compression.reduce_seconds = step, learning_rate, 0.0
        compression.measure_input, compression.epoch = measure, epoch
        self.communicator.clock.restart()
        self.fault = 0
        self.communicator.broadcast(self.shared_buffers)
        (batch,) = batches
        seed_worker(self.seed, step, self.communicator.process)
        self.parallel.zero_grad()
        loss = self._differentiate(batch)
        self.gradient_seconds = time.perf_counter() - started
        self.reduce_seconds = compression.reduce_seconds
        self.communication_seconds = self.communicator.clock.seconds
        timed = compression.layout.device.type == "cpu"  # a GPU's kernels are only queued by then
        self.compression_seconds = self.reduce_seconds - self.communication_seconds if timed else None
        raise_together(self.communicator, compression.layout, step, self.fault)
        self.ledger.close_step()
        return loss.reshape(1)

    def _differentiate(self, batch: Any) -> Tensor:
        """Backward passes over one batch, of which the last one sets the hook going; the loss."""
        pieces = cut(batch, self.micro_batch_size)
        before = self.memories[0] or [None] * len(pieces)
        total, after = 0.0, []
        for position, (piece, memory) in enumerate(zip(pieces, before, strict=True), start=1):
            last = position == len(pieces)
            with nullcontext() if last else self.parallel.no_sync():
                loss, memory = self.loss(self.parallel, piece, memory)
                share = loss / len(pieces) if len(pieces) > 1 else loss
                self._go_back(share)
            total = total + share.detach()
            after.append(memory)
        self.memories[0] = after
        return total

    def _go_back(self, loss: Tensor) -> None:
        try:
            loss.backward()
        except RuntimeError as error:  # as which torch reports whatever a hook's thread has raised
            if self.compression.problem is not None:
                raise self.compression.problem from error
            raise

    def _note(self, faults: list[Fault]) -> None:
        """Remember one for the end of the step: the buckets that the others are at go on."""
        for fault in faults[:1]:
            self.fault = _number(fault, self.communicator, self.compression.layout)

    def _inspect(self, reduced: Reduced) -> None:
        self.ledger.record(reduced)
        if self.compression.refuse is not None:
            return
        layout = self.compression.layout
        for name, remainder in reduced.remainder.items():
            # A NaN stays in the remainder or is sent; so it shows in one of the two.
            if not (remainder.isfinite().all() and reduced.mean[name].isfinite().all()):
                self.fault = encode_fault(self.communicator.process, layout.names.index(name), layout)
