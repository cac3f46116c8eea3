"""The training loop, from the first batch to the summary."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from compressors.api import Plan, Reducer
from data.protocols import Dataset, Loader, WholeLoader, task_of
from trainers.advance import Advance
from trainers.average import RunningAverage
from trainers.break_even import StepCosts
from trainers.checkpoint.fit import require_fit
from trainers.checkpoint.saving import Checkpoints
from trainers.checkpoint.state import TrainingState
from trainers.comm.communicator import Communicator
from trainers.diagnostics.probe import Probe
from trainers.diagnostics.settings import Diagnostics
from trainers.evaluation import evaluate
from trainers.forward import in_precision, require_bf16
from trainers.gradients import AnalyticGradients, GradientSource, NonFiniteGradientError, WorkerGradients
from trainers.layout import Layout
from trainers.learning_rate import LearningRateController, ScheduledPace, check_rates, rates_of_epochs
from trainers.ledger import Ledger
from trainers.overlapped_step import OverlappedStep
from trainers.parts import AnalyticModel, HasDiagnostics, facts_of
from trainers.schedules.autolrs import AutoLRS
from trainers.schedules.schedules import Schedule
from trainers.search import SearchedPace
from trainers.settings import TrainerSettings
from trainers.step import ExplicitStep, GradientStep, sees_faults

SKIPPED_IN_A_ROW = 10  # end a run, which then does not get anywhere


class Tracker(Protocol):
    """Where records go: the terminal, a file, Weights & Biases."""

    def log(self, record: dict[str, float]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Everything a training needs, built and checked. Raises ``ValueError`` for what cannot train.

    A model that is a ``parts.AnalyticModel`` is asked for its gradients; any other is differentiated.
    What a model's ``diagnostics()`` gives becomes part of every record, and of one before the first
    step. A dataset that holds nothing out is not evaluated.
    """

    model: nn.Module
    dataset: Dataset
    reducer: Reducer
    optimizer: torch.optim.Optimizer
    schedule: Schedule | AutoLRS
    layout: Layout
    communicator: Communicator
    loader: Loader  # a ``WholeLoader`` for an analytic model
    settings: TrainerSettings
    seed: int
    diagnostics: Diagnostics = field(default_factory=Diagnostics)  # none

    def __post_init__(self) -> None:
        if self.settings.overlap:
            if len(self.communicator.local_workers) > 1:
                raise ValueError(
                    f"trainer.overlap needs one worker per process: workers={self.communicator.size} "
                    f"but processes={self.communicator.world_size}"
                )
            if self.layout.scope == "global":
                raise ValueError(
                    "trainer.overlap needs scope=layer: with scope=global nothing can be "
                    "compressed before the whole gradient is there"
                )
            if self.diagnostics.names:
                raise ValueError(
                    f"trainer.overlap cannot go with diagnostics={','.join(self.diagnostics.names)}: it "
                    "compresses in pieces; trainer.overlap=false has the whole gradient, in both scopes"
                )
            if self.is_analytic:
                raise ValueError("trainer.overlap needs a model with a backward pass, and this one has none")
        if self.diagnostics.names:
            self._probe()  # it refuses what this method cannot give
        settings = self.settings
        if settings.samples_at_once == 1 and any(isinstance(m, _NormBase) for m in self.model.modules()):
            name = "batch_size" if settings.micro_batch_size is None else "micro_batch_size"
            raise ValueError(f"trainer.{name} must be at least 2 for a model with BatchNorm, got 1")
        if settings.average_reset_epochs is not None and not self.dataset.held_out:
            raise ValueError(
                "trainer.average_reset_epochs has no effect: these data hold nothing out to test"
            )
        if self.is_analytic and (settings.precision != "fp32" or settings.micro_batch_size is not None):
            name = "precision" if settings.precision != "fp32" else "micro_batch_size"
            raise ValueError(f"trainer.{name} has no effect on a model that writes its gradient down")
        if settings.precision == "bf16":
            require_bf16(self.layout.device)
        if isinstance(self.schedule, AutoLRS):
            self._check_search(self.schedule)
            lowest = 1.0
        else:
            base_rate = max(group["lr"] for group in self.optimizer.param_groups)
            lowest = check_rates(self.schedule, self.num_steps, self.epochs_per_step, base_rate)
        self.communicator.declare_kinds(self.reducer.kinds)
        self.reducer.check(self._plan(lowest))

    def _plan(self, lowest_rate: float) -> Plan:
        momentum = max(group.get("momentum", 0.0) for group in self.optimizer.param_groups)
        return Plan(
            scope=self.layout.scope,
            feedback=", ".join(type(outer).__name__ for outer in list(self.reducer.layers())[:-1]),
            optimizer=type(self.optimizer).__name__.lstrip("_"),
            momentum=momentum,
            rates=rates_of_epochs(self.schedule, self.num_steps, self.epochs_per_step),
            lowest_rate=lowest_rate,
        )

    def _check_search(self, search: AutoLRS) -> None:
        if search.validates and "validation" not in self.dataset.held_out:
            raise ValueError(
                f"schedule=autolrs judges trials of {search.validation_from} steps and more by validation "
                "loss, and these data have no validation split: raise schedule.validation_from"
            )
        if search.plan(0, self.num_steps)[1] == 0:
            raise ValueError(
                f"schedule=autolrs finds no room for {search.trials} trials of 5 steps and what they are for "
                f"in {self.num_steps} steps"
            )

    @property
    def is_analytic(self) -> bool:
        return isinstance(self.model, AnalyticModel)

    @property
    def overlaps(self) -> bool:
        """Whether a step reduces beside its backward pass: where asked to, and where that costs nothing.

        A dense reduction of one worker per process takes no longer in pieces, with the same result.
        """
        settings, communicator = self.settings, self.communicator
        needs_the_whole = (
            self.layout.scope == "global"
            or settings.clip_norm is not None
            or settings.nonfinite == "skip"
            or bool(self.diagnostics.names)
            or self.is_analytic
        )
        talks = communicator.world_size == communicator.size > 1 and self.layout.device.type == "cpu"
        return settings.overlap or (talks and self.reducer.traits.lossless and not needs_the_whole)

    @property
    def epochs_per_step(self) -> float:
        return self.loader.epochs_per_step

    @property
    def num_steps(self) -> int:
        if self.settings.steps is not None:
            return self.settings.steps
        assert self.settings.epochs is not None  # settings have one of both
        return max(1, math.ceil(self.settings.epochs / self.epochs_per_step - 1e-9))

    def step_at(self, epoch: float) -> int:
        """The number of steps after which this fractional ``epoch`` is reached."""
        return round(epoch / self.epochs_per_step)

    def run(self, tracker: Tracker, checkpoints: Checkpoints | None = None) -> dict[str, object]:
        """Train; send records to ``tracker``; return the last, best and total values.

        With ``checkpoints`` it goes on from where they start and saves itself there. Raises
        ``NonFiniteGradientError`` when a gradient is not finite (where such steps are skipped, in
        too many of them in a row), ``UnreadableDataError`` when a batch cannot be read,
        ``StoppedError`` when it was asked to stop.
        """
        settings = self.settings
        model = self.model
        diagnose: Callable[[], dict[str, float]] = (
            model.diagnostics if isinstance(model, HasDiagnostics) else dict
        )
        state = self._state()
        probe = state.probe
        advance = Advance(state, self.loader, self.communicator)
        if checkpoints is not None and checkpoints.start is not None:
            require_fit(self, state, checkpoints.start)
            state.restore(checkpoints.start)
        controller = self._controller(state, advance, tracker, checkpoints)
        costs = StepCosts(self.reducer, self.layout, self.communicator)
        self.model.train()
        start = diagnose() if state.step == 0 and not state.search else {}
        if start:
            tracker.log(state.note({"step": 0, "epoch": 0.0, **start}))
        while controller.steps_left() > 0:
            factor = controller.factor()
            finished = controller.steps_left() == 1
            # the probe, in a step that it measures
            looks = probe is not None and probe.expect(state.step + 1, is_last=finished)
            looking = probe if looks else None
            logged = finished or looking is not None or (state.step + 1) % settings.log_every == 0
            began_at = state.epoch
            try:
                outcome = advance(factor, measure=logged or controller.needs_losses)
                state.skipped_in_a_row = 0
            except NonFiniteGradientError as error:
                self._skip_step(state, error)
                advance.count()
                outcome = None
            if outcome is not None and looking is None:
                costs.add(state.gradient_step, state.ledger)
            loss = None
            if outcome is not None and (logged or controller.needs_losses):
                loss = advance.mean_loss(outcome)
            if logged or outcome is None:
                record = {"step": state.step, "epoch": state.epoch}
                if loss is not None:
                    record["train/loss"] = loss
                record["train/learning_rate"] = advance.base_rates[0] * factor
                if settings.nonfinite == "skip":
                    record["train/steps_skipped"] = state.skipped
                record |= {**state.ledger.metrics(), **diagnose()}
                if outcome is not None:
                    record |= outcome.times(state.gradient_step)
                    if looking is not None:
                        record |= looking.latest
                        record["time/reduce_seconds"] -= looking.seconds
                if looking is not None:
                    record |= looking.of_run(state.ledger)
                    if outcome is not None:
                        record["time/diagnostics_seconds"] = looking.seconds
                tracker.log(state.note(record))
            controller.took(loss)
            before = (began_at + 1e-9) // settings.evaluate_every
            if self.dataset.held_out and (
                finished or (state.epoch + 1e-9) // settings.evaluate_every > before
            ):
                quality = self._evaluate(state)
                tracker.log({"step": state.step, "epoch": state.epoch, **quality})
            if checkpoints is not None and not finished:
                checkpoints.after_step(state)
        if checkpoints is not None:
            checkpoints.at_end(state)
        found: dict[str, float] = {**state.last, **controller.summary(), **costs.summary()}
        return {**found, "best": state.best, "layers": state.ledger.layers(), **self.facts()}

    def _controller(
        self, state: TrainingState, advance: Advance, tracker: Tracker, checkpoints: Checkpoints | None
    ) -> LearningRateController:
        if not isinstance(self.schedule, AutoLRS):
            return ScheduledPace(self.schedule, state, self.num_steps, self.epochs_per_step)

        def validate() -> float:
            return self._measure(self.model)["validation/loss"]

        settings, communicator = self.schedule, self.communicator
        return SearchedPace(
            settings, state, self.num_steps, advance, communicator, validate, tracker.log, checkpoints
        )

    def facts(self) -> dict[str, dict[str, object]]:
        """What data, shards and model say of themselves: constants of the run that a reader needs."""
        found = {
            "data": facts_of(self.dataset) | facts_of(self.loader),
            "problem": facts_of(self.model),
        }
        return {name: facts for name, facts in found.items() if facts}

    def _skip_step(self, state: TrainingState, error: NonFiniteGradientError) -> None:
        """Count a step that had no effect. Raises ``NonFiniteGradientError`` where that will not do."""
        if self.settings.nonfinite == "stop":
            raise error
        state.skipped += 1
        state.skipped_in_a_row += 1
        if state.skipped_in_a_row == SKIPPED_IN_A_ROW:
            raise NonFiniteGradientError(f"{SKIPPED_IN_A_ROW} steps in a row are skipped; {error}")
        state.ledger.skip_step()

    def _state(self) -> TrainingState:
        """The live objects of a training that begins."""
        ledger = Ledger(self.layout, self.communicator, self.reducer)
        reset_epochs = self.settings.average_reset_epochs
        probe = self._probe() if self.diagnostics.names else None
        return TrainingState(
            model=self.model,
            optimizer=self.optimizer,
            gradient_step=self._gradient_step(ledger, probe or self.reducer),
            ledger=ledger,
            average=RunningAverage(self.model, reset_epochs) if reset_epochs is not None else None,
            communicator=self.communicator,
            probe=probe,
        )

    def _probe(self) -> Probe:
        return Probe(self.reducer, self.diagnostics)

    def _evaluate(self, state: TrainingState) -> dict[str, float]:
        """Quality of the last weights and, if there is one, of their average; noted in ``state``."""
        quality = self._measure(state.model)
        if state.average is not None:
            of_average = self._measure(state.average.model)
            quality |= {f"average/{name}": value for name, value in of_average.items()}
        quality = state.note(quality)
        for name, value in quality.items():
            better = max if name.split("/")[-1] in task_of(self.dataset).higher_is_better else min
            state.best[name] = better(state.best.get(name, value), value)
        return quality

    def _measure(self, model: nn.Module) -> dict[str, float]:
        size, precision = self.settings.evaluation_batch_size, self.settings.precision
        return evaluate(model, self.dataset, self.communicator, size, precision)

    def _gradient_step(self, ledger: Ledger, reducer: Reducer) -> GradientStep:
        model, layout, communicator, seed = self.model, self.layout, self.communicator, self.seed
        settings = self.settings
        gradients: GradientSource
        if isinstance(model, AnalyticModel):
            assert isinstance(self.loader, WholeLoader)  # data that an analytic model is made for
            shards, clip_norm = self.loader.whole(), settings.clip_norm
            gradients = AnalyticGradients(model, shards, layout, communicator, clip_norm=clip_norm)
            return ExplicitStep(gradients, reducer, layout, communicator, ledger, seed=seed)
        loss = in_precision(task_of(self.dataset).loss, layout.device, settings.precision)
        if self.overlaps:
            return OverlappedStep(
                model,
                loss,
                reducer,
                communicator,
                ledger,
                seed=seed,
                micro_batch_size=settings.micro_batch_size,
                bucket_megabytes=settings.bucket_megabytes,
            )
        gradients = WorkerGradients(
            model,
            loss,
            layout,
            communicator,
            seed=seed,
            clip_norm=settings.clip_norm,
            micro_batch_size=settings.micro_batch_size,
            # What a reducer sees comes too late for a step to be undone.
            checks=settings.nonfinite == "skip" or not sees_faults(layout),
        )
        return ExplicitStep(gradients, reducer, layout, communicator, ledger, seed=seed)
