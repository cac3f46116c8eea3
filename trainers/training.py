"""The frozen parts of a training, and what follows from them."""

import math
from dataclasses import dataclass, field

import torch
from torch import nn

from compressors.api import Reducer
from compressors.none import NoCompression
from data.protocols import Batch, Carry, Dataset, Loader, WholeLoader, task_of, tokens_per_step
from trainers.average import RunningAverage
from trainers.checkpoint.state import TrainingState
from trainers.comm.communicator import Communicator
from trainers.comm.nodes import Nodes
from trainers.diagnostics.probe import Probe
from trainers.diagnostics.settings import Diagnostics
from trainers.evaluation import evaluate
from trainers.local import LocalSteps
from trainers.parts import AnalyticModel, facts_of
from trainers.schedules.autolrs import AutoLRS
from trainers.schedules.schedules import Schedule, factor_at
from trainers.settings import TrainerSettings
from trainers.step import forward
from trainers.step.explicit import ExplicitStep, sees_faults
from trainers.step.forward import Loss, in_precision
from trainers.step.gradients import AnalyticGradients, GradientSource, WorkerGradients
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger
from trainers.step.local import PseudoGradients
from trainers.step.overlapped import OverlappedStep


@dataclass(frozen=True, kw_only=True)
class Training:
    """The parts of a training, and what follows from them; ``requirements.require_trainable`` checks them.

    A model that is a ``parts.AnalyticModel`` computes its gradients; other models are differentiated by
    autograd. The results of a model's ``diagnostics()`` are part of every record, and of a record before the
    first step. A dataset without held-out data is not evaluated.
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
    local: LocalSteps | None = None  # with it, ``optimizer`` is that of the local steps
    nodes: Nodes | None = None  # of the workers, if compression is across nodes

    @property
    def senders(self) -> Communicator:
        """The communicator of those who compress: the nodes, if there are any, or the workers."""
        return self.communicator if self.nodes is None else self.nodes.across

    @property
    def is_analytic(self) -> bool:
        return isinstance(self.model, AnalyticModel)

    @property
    def overlaps(self) -> bool:
        """Whether a step reduces gradients during its backward pass.

        A dense reduction with one worker per process takes no longer in pieces, and has the same result.
        A compressed one takes longer: docs/decisions.md.
        """
        settings, communicator = self.settings, self.communicator
        needs_whole_gradient = (
            self.layout.scope == "global"
            or settings.clip_norm is not None
            or settings.nonfinite == "skip"
            or bool(self.diagnostics.names)
            or self.is_analytic
            or self.local is not None
            or self.nodes is not None
        )
        one_each = communicator.world_size == communicator.size > 1 and self.layout.device.type == "cpu"
        return one_each and type(self.reducer) is NoCompression and not needs_whole_gradient

    @property
    def epochs_per_step(self) -> float:
        return self.loader.epochs_per_step

    @property
    def read_per_step(self) -> tuple[str, float]:
        """How many tokens a worker reads in a step, or samples of other data; mean over workers and steps.

        With nodes, a node takes the place of a worker.
        """
        per_sender = self.communicator.size // self.senders.size  # workers
        tokens = tokens_per_step(self.loader)
        if tokens is not None:
            return "token", tokens * per_sender
        samples = self.settings.batch_size or len(self.dataset.train) / self.communicator.size
        return "sample", samples * per_sender * self.steps_at_once

    @property
    def num_steps(self) -> int:
        if self.settings.steps is not None:
            return self.settings.steps
        assert self.settings.epochs is not None  # the settings have epochs or steps
        return max(1, math.ceil(self.settings.epochs / self.epochs_per_step - 1e-9))

    @property
    def steps_at_once(self) -> int:
        """The local steps of a step; 1 without them."""
        return 1 if self.local is None else self.local.steps_at_once

    @property
    def scheduled(self) -> tuple[int, float]:
        """The number of steps that the schedule counts, local ones if there are any, and epochs per step."""
        return self.num_steps * self.steps_at_once, self.epochs_per_step / self.steps_at_once

    def factor_at(self, step: int, local_step: int = 0) -> float:
        """The schedule's factor on the base rates in ``step``, or in one of its local steps."""
        assert isinstance(self.schedule, Schedule)  # AutoLRS searches for it
        return factor_at(self.schedule, step * self.steps_at_once + local_step, *self.scheduled)

    def step_at(self, epoch: float) -> int:
        """The number of steps before this fractional ``epoch``."""
        return round(epoch / self.epochs_per_step)

    def new_state(self) -> TrainingState:
        """The state at the start of a training."""
        ledger = Ledger(self.layout, self.senders, self.reducer, self.nodes)
        reset_epochs = self.settings.average_reset_epochs
        probe = self.probe() if self.diagnostics.names else None
        gradient_step = self._gradient_step(ledger, probe or self.reducer)
        source = gradient_step.workers if isinstance(gradient_step, ExplicitStep) else None
        return TrainingState(
            model=self.model,
            optimizer=self.outer_optimizer(),
            local=source if isinstance(source, PseudoGradients) else None,
            gradient_step=gradient_step,
            ledger=ledger,
            average=RunningAverage(self.model, reset_epochs) if reset_epochs is not None else None,
            communicator=self.communicator,
            probe=probe,
            data=self.numbers_of_data(),
        )

    def outer_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that updates the weights by the mean of what the workers sent."""
        if self.local is None:
            return self.optimizer
        return self.local.outer.make(self.layout.parameters.values())

    def probe(self) -> Probe:
        """The reducer, wrapped by the diagnostics. Raises ``ValueError`` for unsuitable diagnostics."""
        return Probe(self.reducer, self.diagnostics)

    def facts(self) -> dict[str, dict[str, object]]:
        """Constants of the run that data, shards and model report for its readers."""
        found = {
            "data": facts_of(self.dataset) | facts_of(self.loader),
            "problem": facts_of(self.model),
        }
        return {name: facts for name, facts in found.items() if facts}

    def numbers_of_data(self) -> dict[str, int]:
        """The facts of the data that are whole numbers: they are others if the data have changed."""
        facts = facts_of(self.dataset) | facts_of(self.loader)
        return {name: value for name, value in facts.items() if type(value) is int}

    def is_evaluated(self, before: float, epoch: float, is_last: bool) -> bool:
        """Whether the step from one fractional epoch to the next reaches an evaluation."""
        if not self.dataset.held_out:
            return False
        every = self.settings.evaluate_every
        return is_last or (epoch + 1e-9) // every > (before + 1e-9) // every

    def measure(self, model: nn.Module) -> dict[str, float]:
        """The qualities of ``model`` on the held-out data."""
        size, precision = self.settings.evaluation_batch_size, self.settings.precision
        return evaluate(model, self.dataset, self.communicator, size, precision)

    def _gradient_step(self, ledger: Ledger, reducer: Reducer) -> ExplicitStep | OverlappedStep:
        model, layout, communicator, seed = self.model, self.layout, self.communicator, self.seed
        settings = self.settings
        gradients: GradientSource
        if isinstance(model, AnalyticModel):
            assert isinstance(self.loader, WholeLoader)  # the data of an analytic model
            shards, clip_norm = self.loader.whole(), settings.clip_norm
            gradients = AnalyticGradients(model, shards, layout, communicator, clip_norm=clip_norm)
            return ExplicitStep(gradients, reducer, layout, self.senders, ledger, seed=seed)
        if self.overlaps:
            assert isinstance(reducer, NoCompression)
            return OverlappedStep(
                model,
                self._loss(),
                reducer,
                communicator,
                ledger,
                seed=seed,
                micro_batch_size=settings.micro_batch_size,
                bucket_megabytes=settings.bucket_megabytes,
            )
        gradients = WorkerGradients(
            model,
            self._loss(),
            layout,
            communicator,
            seed=seed,
            clip_norm=settings.clip_norm,
            micro_batch_size=settings.micro_batch_size,
            # Steps that may be skipped are checked before the reducer, which changes its state.
            checks=settings.nonfinite == "skip" or not sees_faults(ledger),
            lends=self.local is None,
        )
        if self.local is not None:
            gradients = PseudoGradients(
                gradients, self.optimizer, layout, communicator, self.local, self.factor_at
            )
        return ExplicitStep(gradients, reducer, layout, self.senders, ledger, seed=seed)

    def _loss(self) -> Loss:
        return in_precision(task_of(self.dataset).loss, self.layout.device, self.settings.precision)

    def carries_after(self, batch: Batch) -> list[Carry]:
        """The state of the loss after ``batch``; an analytic model has none."""
        if self.is_analytic:
            return []
        size, device = self.settings.micro_batch_size, self.layout.device
        return forward.carries_after(self.model, self._loss(), batch, size, device)
