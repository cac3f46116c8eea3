"""A dense training step that reduces buckets of gradients during the backward pass."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import partial

import torch
from torch import Tensor, nn

from compressors.api import Reducer, Segment, Step, inputs_of
from data.protocols import Batch, Batches, Carry
from trainers.comm.communicator import Communicator
from trainers.step.explicit import Reduction, StepTimes, fault_of, sees_faults
from trainers.step.forward import Loss, cut, in_pieces
from trainers.step.gradients import buffers_seen_by_forward, encode_fault, seed_worker
from trainers.step.ledger import Ledger

FIRST_MEGABYTES = 1  # size of the first bucket, so transfers start early


class Buckets:
    """Buckets of parameters, in the expected order of their gradients in the backward pass.

    ``launch`` is called with the indices of a bucket's parameters when all of them have gradients. The order
    of buckets is fixed, even if gradients arrive in another order, because all processes must reduce the same
    bucket. A bucket has ``megabytes`` of gradients, the first at most one. Gradients are copied into its
    memory while they are in the cache.
    """

    def __init__(
        self, parameters: list[nn.Parameter], megabytes: float, launch: Callable[[list[int]], None]
    ) -> None:
        self.launch = launch
        self.buckets = buckets_of(parameters, megabytes)
        self.views = _views_of(parameters, self.buckets)
        self.is_open = False
        self._bucket_of = {position: b for b, own in enumerate(self.buckets) for position in own}
        for position, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._arrived, position))

    def open(self) -> None:
        """Prepare for the gradients of one backward pass."""
        self.is_open, self._next = True, 0
        self._missing = [len(own) for own in self.buckets]

    def close(self) -> None:
        """Launch the remaining buckets, which have parameters without an effect on the loss."""
        self.is_open = False
        for own in self.buckets[self._next :]:
            self.launch(own)

    def _arrived(self, position: int, parameter: nn.Parameter) -> None:
        if not self.is_open:
            return
        assert parameter.grad is not None  # set by the backward pass
        parameter.grad = self.views[position].copy_(parameter.grad)
        self._missing[self._bucket_of[position]] -= 1
        while self._next < len(self.buckets) and not self._missing[self._next]:
            self.launch(self.buckets[self._next])
            self._next += 1


def buckets_of(parameters: Sequence[nn.Parameter], megabytes: float) -> list[list[int]]:
    """Indices in reverse order, divided after the first and then after every ``megabytes`` of gradients."""
    buckets: list[list[int]] = [[]]
    held, enough = 0.0, min(FIRST_MEGABYTES, megabytes)
    for position in reversed(range(len(parameters))):
        if held >= enough:
            buckets.append([])
            held, enough = 0.0, megabytes
        buckets[-1].append(position)
        held += parameters[position].nbytes / 2**20
    return buckets


def _views_of(parameters: list[nn.Parameter], buckets: list[list[int]]) -> dict[int, Tensor]:
    """Views of the buckets' memory for every gradient, in the parameter's shape."""
    views: dict[int, Tensor] = {}
    for own in buckets:
        of_bucket = [parameters[position] for position in own]
        flat = torch.empty(
            sum(p.numel() for p in of_bucket), dtype=of_bucket[0].dtype, device=of_bucket[0].device
        )
        pieces = flat.split([p.numel() for p in of_bucket])
        views |= {i: piece.view(p.shape) for i, piece, p in zip(own, pieces, of_bucket, strict=True)}
    return views


@dataclass(eq=False)
class OverlappedStep:
    """A thread reduces one bucket of gradients while the backward pass computes the next.

    It needs a CPU, one worker per process and layer scope. The result does not depend on the buckets, except
    for rounding under ``trainer.reduction=all_reduce``. Trainings use it for lossless reducers alone.
    ``gradient_seconds`` includes the part of the reduction that did not overlap with the backward pass;
    ``reduce_seconds`` is the whole time of the reducer.
    """

    model: nn.Module
    loss: Loss
    reducer: Reducer
    communicator: Communicator
    ledger: Ledger
    _: KW_ONLY
    seed: int
    micro_batch_size: int | None = None
    bucket_megabytes: float = 25

    def __post_init__(self) -> None:
        self.layout = self.ledger.layout
        self.carries: list[list[Carry]] = [[]]
        self.measured: Mapping[str, float] = {}
        self.shared_buffers = buffers_seen_by_forward(self.model)
        self.parameters = list(self.layout.parameters.values())
        rows = [p.detach().reshape(1, -1) for p in self.parameters]
        segments = list(map(self.layout.segment_of, self.layout.names, rows))
        with torch.inference_mode():
            self.state = self.reducer.init(segments)
        self.checks_before_reducing = not sees_faults(self.ledger)  # for NaN and infinity
        self.buckets = Buckets(self.parameters, self.bucket_megabytes, self._launch)
        self.thread = ThreadPoolExecutor(1, "reduction")

    def run(
        self, batches: Batches, step: int, learning_rate: float, measure: bool = True, epoch: float = 0.0
    ) -> Reduction:
        started = time.perf_counter()
        self.reducer_step = Step(self.seed, step, learning_rate, epoch)
        self.faults: list[int] = []
        self.reduce_seconds = 0.0
        self.ledger.communicator.clock.restart()
        self.communicator.broadcast(self.shared_buffers)
        (batch,) = batches
        seed_worker(self.seed, step, self.communicator.rank)
        for parameter in self.parameters:
            parameter.grad = None
        self._launched: list[Future[None]] = []
        self._means: dict[str, Tensor] = {}
        loss = self._differentiate(batch)
        for future in self._launched:
            future.result()
        self.layout.write_gradients(self._means)
        gradient_seconds, clock = time.perf_counter() - started, self.ledger.communicator.clock
        own = self.reduce_seconds - clock.seconds - clock.leading_seconds
        count = len(self.buckets.buckets)
        times = StepTimes(gradient_seconds, self.reduce_seconds, clock.seconds, own, num_buckets=count)
        # The first layer of this worker that is not finite, as without overlap
        fault = min(self.faults, default=0) if self.checks_before_reducing else fault_of(self.ledger)
        return Reduction(loss.reshape(1), times, fault)

    def _differentiate(self, batch: Batch) -> Tensor:
        """Backward passes over one batch, the last of which completes the gradients; returns the loss."""
        pieces = cut(batch, self.micro_batch_size)

        def differentiate(position: int, share: Tensor) -> None:
            if position == len(pieces) - 1:
                self.buckets.open()
            share.backward()

        loss, after = in_pieces(self.model, self.loss, pieces, self.carries[0], differentiate)
        self.buckets.close()
        self.carries[0] = after
        return loss

    def _launch(self, positions: list[int]) -> None:
        segments = [self._segment(position) for position in positions]
        if self.checks_before_reducing:
            self._record_nonfinite(positions, segments)
        self._launched.append(self.thread.submit(self._reduce, segments))

    def _reduce(self, segments: list[Segment]) -> None:
        """Reduce the gradients of a bucket to their means."""
        if any(future.done() and future.exception() for future in self._launched):
            return  # ``run`` raises the error
        with torch.inference_mode():
            if self.ledger.nodes is not None:
                segments = self.ledger.nodes.means(segments)
            started = time.perf_counter()
            inputs = inputs_of(segments)
            reduced, self.state = self.reducer.reduce(
                inputs, self.state, self.reducer_step, self.ledger.communicator
            )
            self.ledger.record(reduced)
        self._means |= reduced.mean
        self.reduce_seconds += time.perf_counter() - started

    def _segment(self, position: int) -> Segment:
        parameter = self.parameters[position]
        gradient = parameter.grad
        if gradient is None:
            gradient = self.buckets.views[position].zero_()
        return self.layout.segment_of(self.layout.names[position], gradient.reshape(1, -1))

    def _record_nonfinite(self, positions: list[int], segments: list[Segment]) -> None:
        """Record the layers that are not finite; a norm shows whether there are any."""
        if torch.nn.utils.get_total_norm([segment.rows for segment in segments]).isfinite():
            return
        for position, segment in zip(positions, segments, strict=True):
            if not segment.rows.isfinite().all():
                self.faults.append(encode_fault(self.communicator.rank, position, self.layout))
