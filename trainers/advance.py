"""One step of a training: batches, gradients, reduction, update."""

import time
from functools import partial
from typing import NamedTuple

from torch import Tensor

from data.protocols import Loader, reads_files
from trainers.checkpoint.state import TrainingState
from trainers.comm.communicator import Communicator
from trainers.reading import agree
from trainers.step import GradientStep


class Outcome(NamedTuple):
    """What a step had to tell; times in seconds."""

    learning_rate: float
    losses: Tensor | None  # [W], where they were asked for
    step_seconds: float
    update_seconds: float

    def times(self, step: GradientStep) -> dict[str, float]:
        """The step and its parts, as they are recorded."""
        return {
            "time/step_seconds": self.step_seconds,
            "time/gradient_seconds": step.gradient_seconds,
            "time/reduce_seconds": step.reduce_seconds,
            "time/communication_seconds": step.communication_seconds,
            "time/update_seconds": self.update_seconds,
        }


class Advance:
    """Takes ``state`` one step on. The first group's rate is what is called the learning rate."""

    def __init__(self, state: TrainingState, loader: Loader, communicator: Communicator) -> None:
        self.state = state
        self.loader = loader
        self._may_fail = reads_files(loader)  # asked once: a check of a Protocol takes microseconds
        self.communicator = communicator
        self.base_rates: list[float] = [group["lr"] for group in state.optimizer.param_groups]

    def __call__(self, factor: float, *, measure: bool) -> Outcome:
        """One step at ``factor`` times the base rates; ``measure`` asks for losses and ||p||^2.

        Raises ``NonFiniteGradientError`` and ``UnreadableDataError``, with the weights as they were.
        """
        started = time.perf_counter()
        state, step = self.state, self.state.step
        for group, rate in zip(state.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        read = partial(self.loader.batches, step)
        batches = agree(self.communicator, read) if self._may_fail else read()
        learning_rate = self.base_rates[0] * factor
        epoch = step * self.loader.epochs_per_step
        losses = state.gradient_step.run(batches, step, learning_rate, measure=measure, epoch=epoch)
        reduced = time.perf_counter()
        state.optimizer.step()
        if state.average is not None:
            state.average.update(state.model, epoch)
        ended = time.perf_counter()
        self.count()
        return Outcome(learning_rate, losses, ended - started, ended - reduced)

    def count(self) -> None:
        """Be a step further."""
        self.state.step += 1
        self.state.epoch = self.state.step * self.loader.epochs_per_step

    def mean_loss(self, outcome: Outcome) -> float:
        """The mean loss over all workers, of a step that was asked for its losses."""
        assert outcome.losses is not None
        return self.communicator.collect(outcome.losses.double()).mean().item()
