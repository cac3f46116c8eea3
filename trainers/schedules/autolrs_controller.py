"""AutoLRS controller: trials at the start of each stage, all from the same state."""

import copy
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from trainers.checkpoint.facts import SEARCH_COSTS, SearchFacts
from trainers.checkpoint.state import Snapshot, TrainingState
from trainers.comm.communicator import Communicator
from trainers.files.plain import Record
from trainers.schedules.autolrs import AutoLRS, forecast, smooth
from trainers.step.advance import Advance
from trainers.step.gradients import NonFiniteGradientError, require_finite_weights

if TYPE_CHECKING:
    from trainers.checkpoint.saving import Checkpoints

EVALUATIONS = 10  # evaluations of the validation loss in a trial


@dataclass(eq=False)
class AutoLRSController:
    """Finds the learning rate of each stage, in a training of ``num_steps`` steps including trials.

    The progress of the search is in ``state.search``, which is part of a checkpoint. A checkpoint during a
    trial has the state from before the trial, which is then repeated. Steps, bytes and errors of trials are
    reset together with the state, and counted separately.
    """

    settings: AutoLRS
    state: TrainingState
    num_steps: int
    advance: Advance
    communicator: Communicator
    validate: Callable[[], float]  # computes the validation loss of the current state
    log: Callable[[Record], None]
    checkpoints: "Checkpoints | None"
    needs_losses: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not self.state.search:
            self.state.search = {
                "stage": -1,
                "until": self.state.step,  # the step that ends the stage
                "rate": None,
                "forecast": None,  # of the loss at the stage's end
                "losses": [],  # of the stage's steps
                "steps": 0,  # of all trials
                "costs": dict.fromkeys(SEARCH_COSTS.values(), 0.0),
                "rates": [],  # tried for the stage that begins
                "forecasts": [],
                "trial_steps": 0,
                "by_validation": False,
            }

    def steps_left(self) -> int:
        return self.num_steps - self.state.step - self.state.search["steps"]

    def factor(self) -> float:
        search = self.state.search
        if self.state.step == search["until"]:
            if search["losses"]:
                self._log_stage_end()
            self._begin_stage()
        rate = self.state.search["rate"]
        assert rate is not None  # the first stage has trials
        return rate / self.advance.base_rates[0]

    def observe(self, loss: float | None) -> None:
        if loss is not None:
            self.state.search["losses"].append(loss)
        if self.steps_left() == 0 and self.state.search["losses"]:
            self._log_stage_end()

    def summary(self) -> dict[str, float]:
        search = self.state.search
        return {
            "autolrs/stages": search["stage"] + 1,
            "autolrs/search_steps": search["steps"],
            **search["costs"],
        }

    def _begin_stage(self) -> None:
        """Search for the stage's rate."""
        search = self.state.search
        if not search["rates"]:  # otherwise the run was resumed within the trials of this stage
            steps, search["trial_steps"] = self.settings.plan(search["stage"] + 1, self.steps_left())
            search["stage_steps"] = steps
            search["by_validation"] = search["trial_steps"] >= self.settings.validation_from
        if search["trial_steps"]:
            self._try_rates()
            search = self.state.search
            forecasts = _with_infinity(search["forecasts"])
            best = int(np.argmin(forecasts))
            if not math.isfinite(forecasts[best]):
                require_finite_weights(self.state.ledger.layout, self.state.step)
                raise NonFiniteGradientError(
                    f"step {self.state.step + 1}: every rate from {min(search['rates']):g} to "
                    f"{max(search['rates']):g} diverged"
                )
            search["rate"], search["forecast"] = search["rates"][best], search["forecasts"][best]
        else:
            search["forecast"] = None  # too few steps are left: keep the last rate
        assert search["rate"] is not None
        search["stage"] += 1
        search["until"] = self.state.step + search["stage_steps"]
        search["rates"], search["forecasts"] = [], []
        self._log(
            {
                "autolrs/stage": search["stage"],
                "autolrs/stage_steps": search["stage_steps"],
                "autolrs/rate": search["rate"],
                **_if_known("autolrs/forecast", search["forecast"]),
                **self.summary(),
            }
        )

    def _try_rates(self) -> None:
        snapshot = self.state.capture(self.communicator.device)
        search = copy.deepcopy(self.state.search)  # ``restore`` replaces the state's own
        costs_before = self._costs()
        while len(search["rates"]) < self.settings.trials:
            snapshot.facts["search"] = copy.deepcopy(search)
            forecasts = _with_infinity(search["forecasts"])
            rate = self._agree(self.settings.propose(search["rates"], forecasts, search["rate"]))
            values, taken = self._try(rate, search, snapshot)
            for name, cost in self._costs().items():
                total = search["costs"][name] + cost - costs_before[name]
                search["costs"][name] = min(total, sys.float_info.max)  # JSON has no infinity
            for name, num_bytes in self._bytes_of_unfinished_step().items():
                search["costs"][name] += num_bytes
            search["steps"] += taken
            # Validation losses are several steps apart.
            ahead = len(values) * search["stage_steps"] / search["trial_steps"] - 1
            search["rates"].append(rate)
            found = self._agree(forecast(values, ahead))
            search["forecasts"].append(found if math.isfinite(found) else None)
            self.state.restore(snapshot)
            number = len(search["rates"]) - 1
            self._log(
                {
                    f"autolrs/trial_{number}/rate": rate,
                    **_if_known(f"autolrs/trial_{number}/forecast", search["forecasts"][-1]),
                }
            )
        self.state.search = search

    def _try(self, rate: float, search: SearchFacts, snapshot: Snapshot) -> tuple[list[float], int]:
        """Losses of a trial, the last one infinite if it diverged, and its number of steps."""
        factor = rate / self.advance.base_rates[0]
        values: list[float] = []
        num_steps = search["trial_steps"]
        evaluated = {round(num_steps * (number + 1) / EVALUATIONS) for number in range(EVALUATIONS)}
        for step in range(1, num_steps + 1):
            try:
                outcome = self.advance(factor, measure=True)
            except NonFiniteGradientError:
                return [*values, math.inf], step
            if not search["by_validation"]:
                values.append(self.advance.mean_loss(outcome))
            elif step in evaluated:
                values.append(self.validate())
            if values and not math.isfinite(values[-1]):
                return [*values, math.inf], step
            if self.checkpoints is not None:
                self.checkpoints.after_step(self.state, snapshot)
        return values, num_steps

    def _log_stage_end(self) -> None:
        """Log the loss at the end of the last stage, and its forecast."""
        search = self.state.search
        value = self.validate() if search["by_validation"] else float(smooth(search["losses"])[-1])
        error = search["forecast"] - value if search["forecast"] is not None else None
        record = _if_known("autolrs/loss_at_end", value) | _if_known("autolrs/forecast_error", error)
        search["losses"] = []
        self._log(record)

    def _log(self, record: Record) -> None:
        self.log({"step": self.state.step, "epoch": self.state.epoch, **record})

    def _costs(self) -> dict[str, float]:
        metrics = self.state.ledger.metrics()
        return {of_search: metrics[name] for name, of_search in SEARCH_COSTS.items()}

    def _bytes_of_unfinished_step(self) -> dict[str, float]:
        """Bytes sent by an unfinished step, means over workers, by the names of the costs."""
        senders, nodes = self.state.ledger.communicator, self.state.ledger.nodes
        handed = senders.take_charges().sum(1)
        on_link = senders.take_link_bytes()[:, 0]
        senders.take_largest_sent()
        if nodes is not None:
            nodes.take_inside_bytes()
        found = senders.collect(torch.from_numpy(np.stack([on_link, handed], 1))).mean(0)
        return dict(zip(list(SEARCH_COSTS.values())[:2], found.tolist(), strict=True))

    def _agree(self, number: float) -> float:
        """The first process's number, because the last bits of a fit may differ between machines."""
        value = torch.tensor([number], dtype=torch.float64, device=self.communicator.device)
        self.communicator.broadcast([value])
        return value.item()


def _if_known(name: str, value: float | None) -> dict[str, float]:
    """The metric, if its value is known and finite; otherwise empty."""
    return {} if value is None or not math.isfinite(value) else {name: value}


def _with_infinity(forecasts: list[float | None]) -> list[float]:
    """Forecasts with None, the JSON form of a diverged trial, replaced by infinity."""
    return [math.inf if forecast is None else forecast for forecast in forecasts]
