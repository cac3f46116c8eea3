"""Learning-rate control: schedule or AutoLRS."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from compressors.core.checks import LARGEST, is_real, require
from trainers.checkpoint.state import TrainingState
from trainers.schedules.autolrs import AutoLRS
from trainers.schedules.schedules import Schedule, factor_at

_LOOKED_AT = 100_000  # evenly spaced steps at which a schedule is checked before training
_MOST_EPOCHS = 2_000_000  # limit on the number of checked epochs


@dataclass(eq=False)
class ScheduleController:
    """A factor from a schedule over ``num_steps`` steps; ``factor_of`` gives that of a step."""

    factor_of: Callable[[int], float]
    state: TrainingState
    num_steps: int
    needs_losses: bool = field(default=False, init=False)  # of every step, also of steps without a record

    def steps_left(self) -> int:
        return self.num_steps - self.state.step

    def factor(self) -> float:
        return self.factor_of(self.state.step)

    def observe(self, loss: float | None) -> None:
        pass

    def summary(self) -> dict[str, float]:
        return {}


def rates_of_epochs(schedule: Schedule | AutoLRS, num_steps: int, epochs_per_step: float) -> list[float]:
    """Factor on the rate at the first step of each epoch; 1 if ``schedule`` searches for the rate.

    At most ``_MOST_EPOCHS`` epochs are computed, to limit memory.
    """
    first_steps = (math.ceil(epoch / epochs_per_step - 1e-9) for epoch in range(_MOST_EPOCHS))
    steps = itertools.takewhile(lambda step: step < num_steps, first_steps)
    if not isinstance(schedule, Schedule):
        return [1.0 for _ in steps]
    return [factor_at(schedule, step, num_steps, epochs_per_step) for step in steps]


def check_rates(schedule: Schedule, num_steps: int, epochs_per_step: float, base_rate: float) -> float:
    """The smallest factor on the rate in any step. Raise ``ValueError`` for a rate that fp32 cannot hold."""
    last = num_steps - 1
    steps = (*range(0, last, max(1, last // _LOOKED_AT)), last)
    factors = [factor_at(schedule, step, num_steps, epochs_per_step) for step in steps]
    highest, lowest = max(factors), min(factors)
    rule = f"at most {LARGEST:.2g} over optimizer.lr ({base_rate})"
    require(is_real(highest * base_rate), "the schedule's factor", rule, highest)
    return lowest
