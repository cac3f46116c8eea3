"""Pseudo-gradients: how far each worker moved in its local steps."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from data.protocols import Batch, Batches, Loader, tokens_per_step
from trainers.comm.communicator import Communicator
from trainers.local import LocalSteps, fragments_of
from trainers.optimizer import moments_like
from trainers.step.gradients import WorkerGradients, raise_together, seed_worker, shrink
from trainers.step.layout import Layout
from trainers.step.reading import read_together

_BLOCK = 2**20  # entries of all workers' pseudo-gradients that are collected at a time


class Rounds:
    """A loader of the batches of H local steps at a time; they are read when they are needed."""

    def __init__(self, loader: Loader, steps: int, communicator: Communicator) -> None:
        self.loader = loader
        self.steps = steps
        self.communicator = communicator

    @property
    def epochs_per_step(self) -> float:
        return self.steps * self.loader.epochs_per_step

    @property
    def tokens_per_step(self) -> float | None:
        tokens = tokens_per_step(self.loader)
        return None if tokens is None else self.steps * tokens

    def batches(self, step: int) -> Iterator[Batches]:
        """The batches of the W local workers, for one local step after the other.

        Iteration raises ``UnreadableDataError``, in all processes, for a file that cannot be read.
        """
        for number in range(step * self.steps, (step + 1) * self.steps):
            yield read_together(self.communicator, self.loader, partial(self.loader.batches, number))


class PseudoGradients:
    """Start minus end of the local steps of W workers, in the place of their gradients.

    A worker starts at the shared weights, with buffers of its own and its own moments of ``optimizer``. As
    in ``WorkerGradients``, its dropout follows from (seed, local step, worker), and the buffers of the first
    local worker are kept. The workers take each local step one after the other.

    With fragments, ``segments`` are those of one fragment after ``compute``, and those of all before.

    ``factor_at`` gives the factor on the base rates in a step and its local step, both counted from 0.
    """

    checks = True

    def __init__(
        self,
        workers: WorkerGradients,
        optimizer: torch.optim.Optimizer,
        layout: Layout,
        communicator: Communicator,
        settings: LocalSteps,
        factor_at: Callable[[int, int], float],
    ) -> None:
        self.workers = workers
        self.optimizer = optimizer
        self.layout = layout
        self.communicator = communicator
        self.settings = settings
        self.factor_at = factor_at
        self.base_rates: list[float] = [group["lr"] for group in optimizer.param_groups]
        self.updated: list[nn.Parameter] = [p for group in optimizer.param_groups for p in group["params"]]
        self.all_segments = self.segments = workers.segments
        self.fragments = fragments_of(layout.sizes, settings.fragments)
        rows = layout.new_buffer(len(communicator.local_workers))  # [W, D], weights of the workers
        self.weights = [layout.views(row) for row in rows]
        # Of each worker: nothing before its first step, then [state of its loss, moments, its own weights]
        self.carries: list[list[Any]] = [[] for _ in self.weights]
        self.measured: Mapping[str, float] = {}
        self.local_rate: float | None = None
        self.num_fragments = settings.fragments

    def compute(self, batches: Iterator[Batches], step: int, measure: bool = True) -> Tensor:
        """Take the local steps from the workers' weights; return the mean loss of each worker, [W].

        With ``measure``, ``measured`` has the number of local steps so far, the drift, which is the mean over
        the n workers of the L2 norm of a worker's pseudo-gradient minus their mean, and the workers' losses.
        """
        settings, at_once = self.settings, self.settings.steps_at_once
        parameters, buffers = list(self.layout.parameters.values()), self.workers.buffers
        self.communicator.broadcast(self.workers.shared_buffers)
        shared = [[t.data for t in tensors] for tensors in (parameters, buffers)]
        own_buffers = [[b.clone() for b in buffers] for _ in self.weights]
        self._begin(shared[0])
        factors = [self.factor_at(step, number) for number in range(at_once)]
        self.local_rate = self.base_rates[0] * fmean(factors)
        losses: list[list[Tensor]] = [[] for _ in self.weights]
        for number, of_workers in enumerate(batches):
            if number == settings.delay and step > 0:
                self._take_over(shared[0], self.fragments[(step - 1) % settings.fragments])
            local_step = step * at_once + number
            for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
                group["lr"] = rate * factors[number]
            for row, batch in enumerate(of_workers):
                _point(parameters, self.weights[row])
                _point(buffers, own_buffers[row])
                losses[row].append(self._step(row, local_step, batch))
        _point(parameters, shared[0])
        _point(buffers, shared[1])
        _copy(buffers, own_buffers[0])
        fragment = self.fragments[step % settings.fragments]
        for views, end in zip(self.workers.views, self.weights, strict=True):
            for layer in fragment:
                torch.sub(shared[0][layer], end[layer], out=views[layer])
        if settings.fragments > 1:
            self.segments = [self.all_segments[layer] for layer in fragment]
        raise_together(self.communicator, self.layout, step, self.workers.fault())
        means = torch.stack([torch.stack(own).mean() for own in losses])
        if measure:
            everyones = enumerate(self.communicator.collect(means).tolist())
            self.measured = {
                "local/steps": (step + 1) * at_once,
                "local/drift": self._drift(),
                **{f"local/loss/{worker}": loss for worker, loss in everyones},
            }
        return means

    def _begin(self, shared: Sequence[Tensor]) -> None:
        """Set the workers' weights: those of their last step, or the shared ones."""
        for own, carries in zip(self.weights, self.carries, strict=True):
            kept = carries[2] if carries and carries[2] else shared
            if kept is not own:
                _copy(own, kept)

    @torch.no_grad()
    def _take_over(self, shared: Sequence[Tensor], fragment: Sequence[int]) -> None:
        """Replace the workers' weights in the layers of ``fragment``, but for the share ``blend``."""
        for own in self.weights:
            for layer in fragment:
                own[layer].mul_(self.settings.blend).add_(shared[layer], alpha=1 - self.settings.blend)

    def _step(self, row: int, local_step: int, batch: Batch) -> Tensor:
        """One local step of the worker in ``row``, whose weights and buffers are in the model."""
        carries, moments, _ = self.carries[row] or ([], {}, [])
        workers, optimizer = self.workers, self.optimizer
        workers.carries[row] = carries
        seed_worker(workers.seed, local_step, self.communicator.local_workers[row])
        loss = workers.differentiate(row, batch)
        gradients = workers.views[row]
        if workers.clip_norm is not None:
            norm = torch.nn.utils.get_total_norm(gradients)
            torch._foreach_mul_(gradients, shrink(norm, workers.clip_norm))
        for parameter, gradient in zip(self.layout.parameters.values(), gradients, strict=True):
            parameter.grad = gradient
        kept = {self.updated[position]: own for position, own in moments.items()}
        optimizer.state = defaultdict(dict, kept)
        optimizer.step()
        moments = {i: optimizer.state[p] for i, p in enumerate(self.updated) if p in optimizer.state}
        weights = self.weights[row] if self.settings.keeps_weights else []
        self.carries[row] = [workers.carries[row], moments, weights]
        return loss

    @contextmanager
    def mean_weights(self) -> Iterator[None]:
        """Context manager: the model has the mean of the workers' weights at the end of their local steps."""
        parameters = list(self.layout.parameters.values())
        shared = [p.data for p in parameters]
        _point(parameters, [self._mean_of(rows) for rows in zip(*self.weights, strict=True)])
        try:
            yield
        finally:
            _point(parameters, shared)

    def _mean_of(self, rows: Sequence[Tensor]) -> Tensor:
        """The mean of a layer over all n workers; the same for every number of processes."""
        blocks = torch.stack([row.flatten() for row in rows]).split(_BLOCK, dim=1)
        means = [self.communicator.collect(block).double().mean(0) for block in blocks]
        return torch.cat(means).to(rows[0].dtype).view_as(rows[0])

    def _drift(self) -> float:
        """The mean distance of a worker from the workers' mean; the same for every number of processes."""
        squares = torch.zeros(self.communicator.size, dtype=torch.float64)
        for block in (block for own in self.segments for block in own.rows.split(_BLOCK, dim=1)):
            everyones = self.communicator.collect(block).double()
            squares += (everyones - everyones.mean(0)).square().sum(1).cpu()
        return squares.sqrt().mean().item()


def bytes_of_a_worker(optimizer: torch.optim.Optimizer, layout: Layout) -> int:
    """Bytes of a worker's own weights and moments of ``optimizer``, beside its pseudo-gradient."""
    tensors = (t for own in moments_like(optimizer).values() for t in own.values() if isinstance(t, Tensor))
    return layout.num_bytes + sum(t.nbytes for t in tensors)


def _point(tensors: Sequence[Tensor], at: Sequence[Tensor]) -> None:
    """Make the memory of ``at`` that of ``tensors``."""
    for tensor, memory in zip(tensors, at, strict=True):
        tensor.data = memory


def _copy(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
