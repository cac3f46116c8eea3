"""A dense training step that reduces buckets of gradients during the backward pass."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

import torch
from torch import Tensor, nn

from compressors.api import Compressed, Reduced, Segment, backend_of
from compressors.core.segments import sizes_of
from compressors.none import NoCompression, add_up
from data.protocols import Batch, Batches, Carry
from trainers.comm.communicator import Communicator
from trainers.step.explicit import Reduction, StepTimes
from trainers.step.forward import Loss, cut, in_pieces
from trainers.step.gradients import buffers_seen_by_forward, encode_fault, raise_fault, seed_worker
from trainers.step.ledger import Ledger

FIRST_MEGABYTES = 1  # size of the first bucket, so transfers start early


class Buckets:
    """Buckets of parameters, in the expected order of their gradients in the backward pass.

    ``launch`` is called with the number of a bucket when all its parameters have gradients. The order of
    buckets is fixed, even if gradients arrive in another order, because all processes must reduce the same
    bucket. A bucket has ``megabytes`` of gradients, the first at most one.
    """

    def __init__(
        self, parameters: list[nn.Parameter], megabytes: float, launch: Callable[[int], None]
    ) -> None:
        self.launch = launch
        self.positions = buckets_of(parameters, megabytes)
        self.is_open = False
        self._bucket_of = {position: b for b, own in enumerate(self.positions) for position in own}
        for position, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._arrived, position))

    def open(self) -> None:
        """Prepare for the gradients of one backward pass."""
        self.is_open, self._next = True, 0
        self._missing = [len(own) for own in self.positions]

    def close(self) -> None:
        """Launch the remaining buckets, which have parameters without an effect on the loss."""
        self.is_open = False
        for number in range(self._next, len(self.positions)):
            self.launch(number)

    def _arrived(self, position: int, _: nn.Parameter) -> None:
        if not self.is_open:
            return
        self._missing[self._bucket_of[position]] -= 1
        while self._next < len(self.positions) and not self._missing[self._next]:
            self.launch(self._next)
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


@dataclass(eq=False)
class OverlappedStep:
    """Reduces one bucket of gradients while the backward pass computes the next; for dense training.

    It needs a CPU, one worker per process, layer scope and no nodes. Each bucket is one segment. The result
    does not depend on the buckets, except for rounding under ``trainer.reduction=all_reduce``.
    ``gradient_seconds`` is the whole time; ``reduce_seconds`` and the time in collectives are those in which
    the backward pass does not go on.
    """

    model: nn.Module
    loss: Loss
    reducer: NoCompression
    communicator: Communicator
    ledger: Ledger
    _: KW_ONLY
    seed: int
    micro_batch_size: int | None = None
    bucket_megabytes: float = 25

    def __post_init__(self) -> None:
        self.layout = self.ledger.layout
        self.state = ()
        self.carries: list[list[Carry]] = [[]]
        self.measured: Mapping[str, float] = {}
        self.shared_buffers = buffers_seen_by_forward(self.model)
        self.parameters = list(self.layout.parameters.values())
        self.buckets = Buckets(self.parameters, self.bucket_megabytes, self._launch)
        self.segments = [self._segment(f"bucket {i}", own) for i, own in enumerate(self.buckets.positions)]

    def _segment(self, name: str, positions: list[int]) -> Segment:
        """A bucket: its parameters have consecutive positions, in falling order."""
        own, last = [self.parameters[position] for position in positions], positions[-1]
        self.ledger.declare(name, slice(positions[0], last - 1 if last else None, -1))
        rows = torch.empty(1, sum(p.numel() for p in own), dtype=self.layout.dtype, device=self.layout.device)
        return Segment(name, rows, tuple(tuple(p.shape) for p in own))

    def run(
        self, batches: Batches, step: int, learning_rate: float, measure: bool = True, epoch: float = 0.0
    ) -> Reduction:
        started = time.perf_counter()
        self.fault, self.reduce_seconds = 0, 0.0
        self._ends: list[tuple[Tensor, Callable[[], list[Tensor]]]] = []  # norms and means, by bucket
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
        own = self.reduce_seconds - clock.seconds
        seconds = time.perf_counter() - started, self.reduce_seconds, clock.seconds, own
        return Reduction(loss.reshape(1), StepTimes(*seconds, num_buckets=len(self.segments)), fault=None)

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

    def _launch(self, number: int) -> None:
        """Begin to reduce a bucket, beside those before it."""
        segment, positions = self.segments[number], self.buckets.positions[number]
        with torch.inference_mode():
            layers = list(segment.rows.split(sizes_of(segment.shapes).tolist(), 1))
            pairs = zip(positions, layers, strict=True)
            gradients = [self._gradient(position, layer) for position, layer in pairs]
            norms = backend_of(self.layout.device).copy_with_norms(gradients, layers)
            if not norms.sum().isfinite():
                self._record_fault(positions, layers)
            started = time.perf_counter()
            # One row for each layer: the order of additions in a sum depends on where its rows end.
            self._ends.append((norms[None], self.communicator.all_reduce_mean_later(layers, add_up)))
        for position in positions:
            self.parameters[position].grad = None  # frees its memory
        self.reduce_seconds += time.perf_counter() - started

    def _gradient(self, position: int, layer: Tensor) -> Tensor:
        """The gradient [1, d] of a parameter; a copy under channels_last, and ``layer`` if there is none."""
        gradient = self.parameters[position].grad
        return layer.zero_() if gradient is None else gradient.reshape(1, -1)

    def _record_fault(self, positions: list[int], layers: Sequence[Tensor]) -> None:
        """Record the first layer that is not finite, as without overlap; squares can overflow."""
        for position, layer in zip(positions, layers, strict=True):
            if not layer.isfinite().all():
                self.fault = encode_fault(self.communicator.rank, position, self.layout)

    def _end(self) -> None:
        """End the reductions of all buckets, with the means in every ``.grad``."""
        started = time.perf_counter()
        for (norms, end), segment, positions in zip(
            self._ends, self.segments, self.buckets.positions, strict=True
        ):
            with torch.inference_mode():
                means = end()
                dense = Compressed(segment.num_elements, torch.zeros_like(norms), norms)
                self.ledger.record(Reduced({}, {}, {segment.name: dense}))
            for position, mean in zip(positions, means, strict=True):
                self.parameters[position].grad = mean.view_as(self.parameters[position])
        self.reduce_seconds += time.perf_counter() - started
