"""Gradients of the local workers: by one backward pass each, or all at once from an analytic model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from compressors.api import Segment
from compressors.core.payloads import numpy_knows
from compressors.core.randomness import derive_seed
from data.protocols import Batch, Batches, Carry
from trainers.comm.communicator import Communicator
from trainers.parts import AnalyticModel
from trainers.step.forward import Loss, cut, in_pieces
from trainers.step.layout import Layout


class NonFiniteGradientError(ArithmeticError):
    """A worker's gradient, or a weight, has a NaN or an infinity."""


class GradientSource(Protocol):
    """Interface of a source of the W local workers' gradients."""

    segments: list[Segment]  # the last gradients, which the reducer may consume
    carries: list[list[Carry]]  # state of each local worker's loss between batches, per micro-batch
    checks: bool  # whether it checks that gradients are finite; otherwise the reduction must check
    measured: Mapping[str, float]  # metrics of the last step with ``measure``, for its record
    local_rate: float | None  # mean rate of the last step's local steps; None if it has none
    num_fragments: int  # sets of layers of which ``segments`` has one after each step, in turn

    def compute(self, batches: Batches, step: int, measure: bool = True) -> Tensor | None:
        """Compute the gradients of ``batches`` into ``segments``; return the losses [W] if ``measure``.

        With ``checks``, raise ``NonFiniteGradientError`` on all processes if a worker's gradient is not
        finite, after carries and the model's buffers were restored.
        """


@dataclass(eq=False)
class WorkerGradients:
    """Gradients of W workers on their own batches, from one module.

    Workers are independent: a worker's dropout follows from (seed, step, worker), and its forward pass uses
    the buffers from the start of the step. The buffers of the first local worker are kept; all processes
    later copy those of worker 0, as in DDP's buffer broadcast. State of a loss between batches, such as a
    hidden state, is kept per worker.
    """

    model: nn.Module
    loss: Loss
    layout: Layout
    communicator: Communicator
    _: KW_ONLY
    seed: int
    clip_norm: float | None = None
    micro_batch_size: int | None = None
    checks: bool = True
    lends: bool = True

    def __post_init__(self) -> None:
        self.checks |= self.clip_norm is not None  # clipping needs the norm, which shows NaN and infinity
        self.measured: Mapping[str, float] = {}
        self.local_rate: float | None = None
        self.num_fragments = 1
        self.carries: list[list[Carry]] = [[] for _ in self.communicator.local_workers]
        flat = self.layout.new_buffer(len(self.communicator.local_workers), aligned=True)  # [W, D]
        self.segments = self.layout.segments(flat)
        self.views = [self.layout.views(row) for row in flat]
        # With layer scope and one worker, the reducer can use the tensors of the backward pass.
        self.lends &= len(flat) == 1 and self.layout.scope == "layer" and self.micro_batch_size is None
        self.buffers = list(self.model.buffers())
        self.shared_buffers = buffers_seen_by_forward(self.model)

    def compute(self, batches: Sequence[Batch], step: int, measure: bool = True) -> Tensor:
        """The gradients of W batches; with ``clip_norm``, scaled down to at most that L2 norm each."""
        self.communicator.broadcast(self.shared_buffers)
        several = len(batches) > 1
        before, carries = [b.clone() for b in self.buffers], list(self.carries)
        after_first: list[Tensor] = []
        losses, norms = [], []
        for row, (worker, batch) in enumerate(zip(self.communicator.local_workers, batches, strict=True)):
            if row == 1:
                after_first = [b.clone() for b in self.buffers]
            if row > 0:
                _restore(self.buffers, before)
            seed_worker(self.seed, step, worker)
            losses.append(self.differentiate(row, batch))
            if not self.checks:
                continue
            norm = torch.nn.utils.get_total_norm(self.views[row])
            if self.clip_norm is not None:
                torch._foreach_mul_(self.views[row], shrink(norm, self.clip_norm))
            norms.append(norm)
        if several:
            _restore(self.buffers, after_first)
        if self.checks:
            self._check(norms, step, before, carries)
        return torch.stack(losses)

    def _check(
        self, norms: list[Tensor], step: int, before: list[Tensor], carries: list[list[Carry]]
    ) -> None:
        """Restore buffers and carries and raise if a worker's gradient is not finite."""
        try:
            raise_together(self.communicator, self.layout, step, self.fault(norms))
        except NonFiniteGradientError:
            _restore(self.buffers, before)
            self.carries[:] = carries
            raise

    def fault(self, norms: list[Tensor] | None = None) -> int:
        """``encode_fault`` of the last worker with a gradient that is not finite, or 0.

        ``norms`` are those of the gradients, if they are known.
        """
        if norms is None:
            norms = [torch.nn.utils.get_total_norm(views) for views in self.views]
        finite = torch.stack(norms).isfinite().tolist()
        bad = [
            first_bad(self.views[row], worker, self.layout)
            # an overflowed norm: clipping would set the gradient to 0
            or (encode_fault(worker, 0, self.layout) if self.clip_norm is not None else 0)
            for row, (worker, fine) in enumerate(zip(self.communicator.local_workers, finite, strict=True))
            if not fine
        ]
        return max(bad, default=0)

    def differentiate(self, row: int, batch: Batch) -> Tensor:
        """Compute the gradient of one worker's batch into its views; return the loss."""
        parameters, views = list(self.layout.parameters.values()), self.views[row]
        if self.lends:
            return self._lend(parameters, batch)

        def differentiate(position: int, share: Tensor) -> None:
            gradients = torch.autograd.grad(share, parameters, allow_unused=True, materialize_grads=True)
            for view, gradient in zip(views, gradients, strict=True):
                view.add_(gradient) if position else view.copy_(gradient)

        pieces = cut(batch, self.micro_batch_size)
        loss, self.carries[row] = in_pieces(self.model, self.loss, pieces, self.carries[row], differentiate)
        return loss

    def _lend(self, parameters: list[nn.Parameter], batch: Batch) -> Tensor:
        """Compute the gradient of the only worker in autograd's own tensors; return the loss."""
        self.views[0], self.segments = [], []  # frees their memory for reuse
        for parameter in parameters:
            parameter.grad = None
        # Unlike autograd.grad, backward() returns tensors without other references.
        loss, self.carries[0] = in_pieces(
            self.model, self.loss, [batch], self.carries[0], lambda _, share: share.backward()
        )
        gradients = (p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters)
        rows = [gradient.reshape(1, -1) for gradient in gradients]  # copies under channels_last
        if len({row.untyped_storage().data_ptr() for row in rows}) < len(rows):
            rows = [row.clone() for row in rows]  # the gradients of reshaped weights may be one tensor
        self.views[0] = [row.view(p.shape) for row, p in zip(rows, parameters, strict=True)]
        self.segments = list(map(self.layout.segment_of, self.layout.names, rows))
        return loss


@dataclass(eq=False)
class AnalyticGradients:
    """Gradients of W workers from a model that computes all of them in a few matrix products."""

    model: AnalyticModel
    shards: InitVar[Batches]
    layout: Layout
    communicator: Communicator
    _: KW_ONLY
    clip_norm: float | None = None

    def __post_init__(self, shards: Batches) -> None:
        self.checks = True
        self.measured: Mapping[str, float] = {}
        self.local_rate: float | None = None
        self.num_fragments = 1
        self.carries: list[list[Carry]] = [[] for _ in self.communicator.local_workers]  # always empty
        with torch.inference_mode():
            self.flat = self.layout.new_buffer(len(self.communicator.local_workers))  # [W, D]
            self.segments = self.layout.segments(self.flat)
            self.model.begin(shards)
        self._entries = self.flat.numpy() if numpy_knows(self.flat) else self.flat

    def compute(self, batches: Batches, step: int, measure: bool = True) -> Tensor | None:
        """The gradients of all local workers; with ``clip_norm``, scaled down to at most that L2 norm."""
        with torch.inference_mode():
            losses = self.model.worker_gradients(batches, self.flat, measure)
            if self.clip_norm is not None:
                norms = torch.linalg.vector_norm(self.flat, dim=1, keepdim=True)
                # An overflowed norm is a fault below: clipping by it would set the gradient to 0.
                self.flat.mul_(shrink(norms, self.clip_norm).where(norms.isfinite(), torch.nan))
        with np.errstate(over="ignore", invalid="ignore"):
            total = self._entries.sum()  # one pass; an overflow of the sum is detected too
        fault = 0
        if not math.isfinite(total):
            bad = [
                first_bad(self.layout.views(row), worker, self.layout)
                for row, worker in zip(self.flat, self.communicator.local_workers, strict=True)
            ]
            fault = max(bad)
        raise_together(self.communicator, self.layout, step, fault)
        return losses


def shrink(norm: Tensor, largest: float) -> Tensor:
    """The factor that reduces a gradient's ``norm`` to ``largest``; 1 if it is below."""
    return (largest / (norm + 1e-6)).clamp(max=1.0)


def buffers_seen_by_forward(model: nn.Module) -> list[Tensor]:
    """Buffers that a training forward pass may read; every worker must start from those of worker 0.

    BatchNorm's running statistics are only read in evaluation, before which processes copy them.
    """
    modules = [m for m in model.modules() if not isinstance(m, _NormBase)]
    return [b for m in modules for b in m.buffers(recurse=False)]


def seed_worker(seed: int, step: int, worker: int) -> None:
    """Seed torch's generators, which dropout uses, from (seed, step, worker)."""
    number = derive_seed("forward", seed, step, worker)
    if torch.cuda.is_initialized():
        torch.manual_seed(number)
    else:  # saves 0.25 ms: skips the seeds of unused GPUs
        torch.default_generator.manual_seed(number)


def first_bad(views: list[Tensor], worker: int, layout: Layout) -> int:
    """``encode_fault`` of a worker's first layer that is not finite; 0 if only a norm or sum overflowed."""
    for layer, view in enumerate(views):
        if not view.isfinite().all():
            return encode_fault(worker, layer, layout)
    return 0


def encode_fault(worker: int, layer: int, layout: Layout) -> int:
    """A positive number for a worker's layer, so processes can agree on one fault."""
    return 1 + worker * len(layout.names) + layer


def raise_together(
    communicator: Communicator, layout: Layout, step: int, fault: int, what: str = "the gradient"
) -> None:
    """Raise ``NonFiniteGradientError`` on every process if any process found a fault (> 0) of ``what``."""
    raise_fault(layout, step, communicator.all_reduce_max(fault), what)


def raise_fault(layout: Layout, step: int, fault: int, what: str = "the gradient") -> None:
    """Raise ``NonFiniteGradientError`` for the processes' largest ``encode_fault``, unless it is 0."""
    if fault:
        worker, layer = divmod(fault - 1, len(layout.names))
        raise NonFiniteGradientError(
            f"step {step + 1}: {what} of worker {worker} is not finite in layer {layout.names[layer]}"
        )


def require_finite_weights(layout: Layout, step: int) -> None:
    """Raise ``NonFiniteGradientError`` if a weight is not finite after ``step`` steps.

    Weights are equal on all processes. Gradients were finite until then, so the update or what the method
    sent was not.
    """
    found = [parameter.isfinite().all() for parameter in layout.parameters.values()]
    if torch.stack(found).all():  # one wait for a GPU
        return
    for name, is_finite in zip(layout.names, found, strict=True):
        if not is_finite:
            if step == 0:
                raise NonFiniteGradientError(f"a weight is not finite in layer {name} before the first step")
            raise NonFiniteGradientError(
                f"step {step}: a weight is not finite in layer {name}, though the workers' gradients were: "
                "the update, or what the compressor sent, is not finite"
            )


def _restore(buffers: list[Tensor], values: list[Tensor]) -> None:
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)
