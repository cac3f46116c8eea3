"""One step of a training: batches, gradients, reduction, update."""

import time
from functools import partial
from typing import NamedTuple

from torch import Tensor

from data.protocols import Loader, reads_files
from trainers.checkpoint.state import TrainingState
from trainers.comm.communicator import Communicator
from trainers.step.explicit import StepTimes
from trainers.step.gradients import NonFiniteGradientError, raise_together
from trainers.step.reading import agree

SKIPPED_IN_A_ROW = 10  # skipped steps in sequence that end a run


class Outcome(NamedTuple):
    """Results of a step; times in seconds."""

    losses: Tensor | None  # [W], if requested
    step_seconds: float
    update_seconds: float
    parts: StepTimes

    def times(self) -> dict[str, float]:
        """Times of the step and its parts, for the records."""
        return {
            "time/step_seconds": self.step_seconds,
            "time/gradient_seconds": self.parts.gradient_seconds,
            "time/reduce_seconds": self.parts.reduce_seconds,
            "time/communication_seconds": self.parts.communication_seconds,
            "time/update_seconds": self.update_seconds,
        }


class Advance:
    """Takes steps of the training ``state``. Reducers get the learning rate of the first parameter group.

    The factor on the base rates applies to the optimizer of the local steps, if there is one.
    """

    def __init__(self, state: TrainingState, loader: Loader, communicator: Communicator) -> None:
        self.state = state
        self.loader = loader
        self._may_fail = reads_files(loader)  # computed once, because a Protocol check takes microseconds
        self.communicator = communicator
        self.scheduled = state.local.optimizer if state.local is not None else state.optimizer
        self.base_rates: list[float] = [group["lr"] for group in self.scheduled.param_groups]

    def __call__(self, factor: float, *, measure: bool) -> Outcome:
        """One step at ``factor`` times the base rates; ``measure`` requests the losses.

        Raises ``NonFiniteGradientError`` and ``UnreadableDataError``; the weights are then unchanged.
        """
        began = time.perf_counter()
        state, number = self.state, self.state.step
        for group, rate in zip(self.scheduled.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        read = partial(self.loader.batches, number)
        batches = agree(self.communicator, read) if self._may_fail else read()
        rate, epoch = state.optimizer.param_groups[0]["lr"], number * self.loader.epochs_per_step
        # W gradients, compressed, and their mean in every .grad; one call, because a dense
        # reduction may begin before the backward pass ends
        losses, times, fault = state.gradient_step.run(batches, number, rate, measure=measure, epoch=epoch)
        if fault is not None:
            raise_together(self.communicator, state.ledger.layout, number, fault)
        state.ledger.close_step()
        reduced = time.perf_counter()
        state.optimizer.step()
        if state.average is not None:
            state.average.update(state.model, epoch)
        ended = time.perf_counter()
        state.skipped_in_a_row = 0
        self._count()
        return Outcome(losses, ended - began, ended - reduced, times)

    def skip(self, error: NonFiniteGradientError, nonfinite: str) -> None:
        """Count a step without an update. Raises ``error`` unless ``nonfinite`` is "skip".

        Also raises after ``SKIPPED_IN_A_ROW`` skipped steps in sequence.
        """
        if nonfinite == "stop":
            raise error
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        if state.skipped_in_a_row == SKIPPED_IN_A_ROW:
            raise NonFiniteGradientError(f"{SKIPPED_IN_A_ROW} steps in a row are skipped; {error}")
        state.ledger.clear_step()
        self._count()

    def _count(self) -> None:
        self.state.step += 1
        self.state.epoch = self.state.step * self.loader.epochs_per_step

    def mean_loss(self, outcome: Outcome) -> float:
        """The mean loss over all workers of a step with requested losses."""
        assert outcome.losses is not None
        return self.communicator.collect(outcome.losses.double()).mean().item()
