"""A dense training step that reduces buckets of gradients during the backward pass."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

import torch
from torch import Tensor, nn

from compressors.api import Input, Reduced, Reducer, State, Step, backend_of
from data.protocols import Batch, Batches, Carry
from trainers.comm.communicator import Communicator
from trainers.step.explicit import Reduction, StepTimes
from trainers.step.forward import Loss, cut, in_pieces
from trainers.step.gradients import buffers_seen_by_forward, encode_fault, raise_fault, seed_worker
from trainers.step.ledger import Ledger

FIRST_MEGABYTES = 1  # size of the first bucket, so transfers start early


class Buckets:
    """Buckets of parameters, in the expected order of their gradients in the backward pass.

    ``launch`` is called with the indices of a bucket's parameters when all of them have gradients. The order
    of buckets is fixed, even if gradients arrive in another order, because all processes must reduce the same
    bucket. A bucket has ``megabytes`` of gradients, the first at most one. ``rows`` are the parameters'
    parts of its memory, [1, d] each.
    """

    def __init__(
        self, parameters: list[nn.Parameter], megabytes: float, launch: Callable[[list[int]], None]
    ) -> None:
        self.launch = launch
        self.buckets = buckets_of(parameters, megabytes)
        self.rows = _rows_of(parameters, self.buckets)
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

    def _arrived(self, position: int, _: nn.Parameter) -> None:
        if not self.is_open:
            return
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


def _rows_of(parameters: list[nn.Parameter], buckets: list[list[int]]) -> dict[int, Tensor]:
    """Each parameter's part of its bucket's memory, [1, d]."""
    rows: dict[int, Tensor] = {}
    for own in buckets:
        first, sizes = parameters[own[0]], [parameters[position].numel() for position in own]
        flat = torch.empty(1, sum(sizes), dtype=first.dtype, device=first.device)
        rows |= zip(own, flat.split(sizes, 1), strict=True)
    return rows


@dataclass(eq=False)
class OverlappedStep:
    """Reduces one bucket of gradients while the backward pass computes the next.

    It needs a CPU, one worker per process, layer scope and no nodes. The result does not depend on the
    buckets, except for rounding under ``trainer.reduction=all_reduce``. Trainings use it for lossless
    reducers alone. ``gradient_seconds`` is the whole time; ``reduce_seconds`` and the time in collectives are
    those in which the backward pass does not go on.
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
        self.buckets = Buckets(self.parameters, self.bucket_megabytes, self._launch)
        self.segments = [  # in the memory of the buckets
            self.layout.segment_of(name, self.buckets.rows[position])
            for position, name in enumerate(self.layout.names)
        ]
        with torch.inference_mode():
            self.state = self.reducer.init(self.segments)
        self.backend = backend_of(self.layout.device)

    def run(
        self, batches: Batches, step: int, learning_rate: float, measure: bool = True, epoch: float = 0.0
    ) -> Reduction:
        started = time.perf_counter()
        self.reducer_step = Step(self.seed, step, learning_rate, epoch)
        self.fault, self.reduce_seconds = 0, 0.0
        self._ends: list[Callable[[State], tuple[Reduced, State]]] = []  # of the reductions that have begun
        clock = self.communicator.clock
        clock.restart()
        self.communicator.broadcast(self.shared_buffers)
        (batch,) = batches
        seed_worker(self.seed, step, self.communicator.rank)
        for parameter in self.parameters:
            parameter.grad = None
        loss = self._differentiate(batch)
        # Beside the reductions: an exchange after them would take milliseconds.
        everyones_faults = self.communicator.collect_later(torch.tensor([[self.fault]]))
        self._end()
        raise_fault(self.layout, step, int(everyones_faults().max()))
        own = self.reduce_seconds - clock.seconds - clock.leading_seconds
        seconds = time.perf_counter() - started, self.reduce_seconds, clock.seconds, own
        times = StepTimes(*seconds, num_buckets=len(self.buckets.buckets))
        return Reduction(loss.reshape(1), times, fault=None)

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
        """Begin to reduce a bucket, beside those before it."""
        segments = [self.segments[position] for position in positions]
        with torch.inference_mode():
            gradients = [self._gradient(position) for position in positions]
            norms = self.backend.copy_with_norms(gradients, [own.rows[0] for own in segments])
            self.fault = self._fault(positions, norms) or self.fault
            started = time.perf_counter()
            of_layers = norms[:, None, None].unbind()
            inputs = [Input(own, norms=norm) for own, norm in zip(segments, of_layers, strict=True)]
            self._ends.append(self.reducer.begin(inputs, self.reducer_step, self.communicator))
        self.reduce_seconds += time.perf_counter() - started

    def _gradient(self, position: int) -> Tensor:
        """The gradient [d] of a parameter; a copy under channels_last."""
        gradient = self.parameters[position].grad
        return self.segments[position].rows[0].zero_() if gradient is None else gradient.reshape(-1)

    def _fault(self, positions: list[int], norms: Tensor) -> int:
        """``encode_fault`` of the first layer of a bucket that is not finite, or 0."""
        finite = norms.isfinite().tolist()
        bad = [position for position, is_finite in zip(positions, finite, strict=True) if not is_finite]
        for position in sorted(bad):
            if not self.segments[position].rows.isfinite().all():  # squares of finite entries can overflow
                return encode_fault(self.communicator.rank, position, self.layout)
        return 0

    def _end(self) -> None:
        """End the reductions of all buckets, with the means in every ``.grad``."""
        started = time.perf_counter()
        means: dict[str, Tensor] = {}
        with torch.inference_mode():
            for end in self._ends:
                reduced, self.state = end(self.state)
                self.ledger.record(reduced)
                means |= reduced.mean
        self.layout.write_gradients(means)
        self.reduce_seconds += time.perf_counter() - started
