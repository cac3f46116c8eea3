"""Learning-rate control: schedule or AutoLRS."""

import itertools
import math
from typing import Protocol

from compressors.core.checks import LARGEST, is_real, require
from trainers.checkpoint.state import TrainingState
from trainers.schedules.autolrs import AutoLRS
from trainers.schedules.schedules import Schedule

_LOOKED_AT = 100_000  # steps of a schedule, evenly spaced, before training
_MOST_EPOCHS = 2_000_000  # that are looked at


class LearningRateController(Protocol):
    """Asked before every step."""

    needs_losses: bool  # of every step, also of those that are not logged

    def steps_left(self) -> int:
        """Steps that may follow, at most."""

    def factor(self) -> float:
        """What the base learning rates are multiplied by in the next step; finding it may take steps."""

    def observe(self, loss: float | None) -> None:
        """A step was taken; its mean loss, where it is known."""

    def summary(self) -> dict[str, float]:
        """What there is to tell when the training is over."""


class ScheduleController:
    """A factor that follows from how much of ``num_steps`` is done."""

    needs_losses = False

    def __init__(
        self, schedule: Schedule, state: TrainingState, num_steps: int, epochs_per_step: float
    ) -> None:
        self.schedule = schedule
        self.state = state
        self.num_steps = num_steps
        self.epochs_per_step = epochs_per_step

    def steps_left(self) -> int:
        return self.num_steps - self.state.step

    def factor(self) -> float:
        epochs = self.num_steps * self.epochs_per_step
        return self.schedule.factor(self.state.step * self.epochs_per_step, epochs)

    def observe(self, loss: float | None) -> None:
        pass

    def summary(self) -> dict[str, float]:
        return {}


def rates_of_epochs(schedule: Schedule | AutoLRS, num_steps: int, epochs_per_step: float) -> list[float]:
    """Factor on the rate at the first step of each epoch; 1 where ``schedule`` finds it on the way.

    Of at most ``_MOST_EPOCHS``: more take memory, and nobody waits for them.
    """
    first_steps = (math.ceil(epoch / epochs_per_step - 1e-9) for epoch in range(_MOST_EPOCHS))
    steps = itertools.takewhile(lambda step: step < num_steps, first_steps)
    if not isinstance(schedule, Schedule):
        return [1.0 for _ in steps]
    return [schedule.factor(step * epochs_per_step, num_steps * epochs_per_step) for step in steps]


def check_rates(schedule: Schedule, num_steps: int, epochs_per_step: float, base_rate: float) -> float:
    """The smallest factor on the rate in any step. Raise ``ValueError`` for a rate that fp32 cannot hold."""
    last = num_steps - 1
    steps = (*range(0, last, max(1, last // _LOOKED_AT)), last)
    factors = [schedule.factor(step * epochs_per_step, num_steps * epochs_per_step) for step in steps]
    highest, lowest = max(factors), min(factors)
    rule = f"at most {LARGEST:.2g} over optimizer.lr ({base_rate})"
    require(is_real(highest * base_rate), "the schedule's factor", rule, highest)
    return lowest
