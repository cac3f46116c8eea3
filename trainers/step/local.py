"""Pseudo-gradients: how far each worker moved in its local steps."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from data.protocols import Batch, Batches, Loader
from trainers.comm.communicator import Communicator
from trainers.step.clipping import shrink
from trainers.step.gradients import WorkerGradients, raise_together, seed_worker
from trainers.step.layout import Layout
from trainers.step.reading import read_together

Moments = dict[int, dict[str, Any]]  # an optimizer's state, by the position of the parameter in its groups


class Rounds:
    """A loader of the batches of H local steps at a time; they are read when they are needed."""

    def __init__(self, loader: Loader, steps: int, communicator: Communicator) -> None:
        self.loader = loader
        self.steps = steps
        self.communicator = communicator

    @property
    def epochs_per_step(self) -> float:
        return self.steps * self.loader.epochs_per_step

    def batches(self, step: int) -> Iterator[Batches]:
        """The batches of the W local workers, for one local step after the other.

        Iteration raises ``UnreadableDataError``, in all processes, for a file that cannot be read.
        """
        for number in range(step * self.steps, (step + 1) * self.steps):
            yield read_together(self.communicator, self.loader, partial(self.loader.batches, number))


class PseudoGradients:
    """Start minus end of the H local steps of W workers, in the place of their gradients.

    A worker starts at the shared weights, with buffers of its own and its own moments of ``optimizer``. As
    in ``WorkerGradients``, its dropout follows from (seed, local step, worker), and the buffers of the first
    local worker are kept. The workers take each local step one after the other.

    ``factor_of`` gives the factor on the base rates in a local step, counted from 0 over the whole training.
    """

    checks = True

    def __init__(
        self,
        workers: WorkerGradients,
        optimizer: torch.optim.Optimizer,
        layout: Layout,
        communicator: Communicator,
        *,
        steps: int,
        factor_of: Callable[[int], float],
    ) -> None:
        self.workers = workers
        self.optimizer = optimizer
        self.layout = layout
        self.communicator = communicator
        self.steps = steps
        self.factor_of = factor_of
        self.base_rates: list[float] = [group["lr"] for group in optimizer.param_groups]
        self.updated: list[nn.Parameter] = [p for group in optimizer.param_groups for p in group["params"]]
        self.segments = workers.segments
        rows = layout.new_buffer(len(communicator.local_workers))  # [W, D], weights of the workers
        self.weights = [layout.views(row) for row in rows]
        # Of each worker: nothing before its first step, then [state of its loss, moments]
        self.carries: list[list[Any]] = [[] for _ in self.weights]

    def compute(self, batches: Iterator[Batches], step: int, measure: bool = True) -> Tensor:
        """Take the local steps from the shared weights; return the mean loss of each worker, [W]."""
        parameters, buffers = list(self.layout.parameters.values()), self.workers.buffers
        self.communicator.broadcast(self.workers.shared_buffers)
        start = [[t.data for t in tensors] for tensors in (parameters, buffers)]
        own_buffers = [[b.clone() for b in buffers] for _ in self.weights]
        for own in self.weights:
            _copy(own, start[0])
        losses: list[list[Tensor]] = [[] for _ in self.weights]
        for number, of_workers in enumerate(batches, start=step * self.steps):
            factor = self.factor_of(number)
            for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
                group["lr"] = rate * factor
            for row, batch in enumerate(of_workers):
                _point(parameters, self.weights[row])
                _point(buffers, own_buffers[row])
                losses[row].append(self._step(row, number, batch))
        _point(parameters, start[0])
        _point(buffers, start[1])
        _copy(buffers, own_buffers[0])
        for views, end in zip(self.workers.views, self.weights, strict=True):
            for view, before, after in zip(views, start[0], end, strict=True):
                torch.sub(before, after, out=view)
        raise_together(self.communicator, self.layout, step, self.workers.fault())
        return torch.stack([torch.stack(own).mean() for own in losses])

    def _step(self, row: int, number: int, batch: Batch) -> Tensor:
        """One local step of the worker in ``row``, whose weights and buffers are in the model."""
        carries, moments = self.carries[row] or ([], {})
        workers, optimizer = self.workers, self.optimizer
        workers.carries[row] = carries
        seed_worker(workers.seed, number, self.communicator.local_workers[row])
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
        self.carries[row] = [workers.carries[row], moments]
        return loss


def _point(tensors: Sequence[Tensor], at: Sequence[Tensor]) -> None:
    """Make the memory of ``at`` that of ``tensors``."""
    for tensor, memory in zip(tensors, at, strict=True):
        tensor.data = memory


def _copy(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
