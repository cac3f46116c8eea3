"""The training loop, from the first batch to the summary."""

import math
import time
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from compressors.api import Reducer
from compressors.checks import is_count, is_real, require, require_flag
from compressors.feedback import ErrorFeedback
from trainers.communicator import Communicator
from trainers.evaluation import evaluate
from trainers.gradients import AnalyticGradients, WorkerGradients
from trainers.layout import Layout
from trainers.ledger import Ledger
from trainers.schedule import Schedule
from trainers.step import ExplicitStep, GradientStep, OverlappedStep


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """How long to train, in which portions, and how often to look.

    An epoch is as many samples as the training split holds, read by all workers together. Batches
    are always full: where a worker's shard ends inside one, its next pass begins. Raises
    ``ValueError`` for settings that contradict each other.
    """

    epochs: float | None  # length of the run; not looked at when steps is set
    steps: int | None  # length of the run in optimizer steps
    batch_size: int | None  # samples per worker and step; None for the worker's whole shard
    log_every: int  # steps between two records of metrics
    evaluate_every: float  # epochs between two evaluations; there is always one at the end
    evaluation_batch_size: int
    clip_norm: float | None  # largest L2 norm of a worker's gradient, before compression
    overlap: bool  # compress and communicate beside the backward pass, through DDP's hook

    def __post_init__(self) -> None:
        if self.steps is None:
            valid = is_real(self.epochs) and 0 < self.epochs <= 1e6
            require(valid, "trainer.epochs", "in (0, 1e6], unless trainer.steps is set", self.epochs)
        else:
            require(is_count(self.steps), "trainer.steps", "an integer >= 1", self.steps)
        for name in ("log_every", "evaluation_batch_size"):
            value = getattr(self, name)
            require(is_count(value), f"trainer.{name}", "an integer >= 1", value)
        valid = self.batch_size is None or is_count(self.batch_size)
        require(valid, "trainer.batch_size", "an integer >= 1, or null for whole shards", self.batch_size)
        valid = is_real(self.evaluate_every) and self.evaluate_every > 0
        require(valid, "trainer.evaluate_every", "> 0", self.evaluate_every)
        if self.clip_norm is not None:
            valid = is_real(self.clip_norm) and self.clip_norm > 0
            require(valid, "trainer.clip_norm", "> 0 or null", self.clip_norm)
        require_flag("trainer.overlap", self.overlap)
        if self.overlap and self.clip_norm is not None:
            raise ValueError(
                "trainer.clip_norm cannot go with trainer.overlap: "
                "the norm is known only when the backward pass is over"
            )


class Tracker(Protocol):
    """Where records go: the terminal, a file, Weights & Biases."""

    def log(self, record: dict[str, float]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Everything a training needs, built and checked. Raises ``ValueError`` for what cannot train.

    A model that has ``worker_gradients`` (``gradients.AnalyticModel``) is asked for its gradients;
    any other is differentiated. What a model's ``diagnostics()`` gives becomes part of every
    record, and of one before the first step. A dataset whose ``test`` is None is not evaluated.
    """

    model: nn.Module
    dataset: Any
    reducer: Reducer
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    layout: Layout
    communicator: Communicator
    loader: Any  # ``batches(step)`` of the local workers; ``whole()``, all they hold
    settings: TrainerSettings
    seed: int

    def __post_init__(self) -> None:
        if self.settings.overlap:
            if len(self.communicator.ranks) > 1:
                raise ValueError(
                    f"trainer.overlap needs one worker per process: workers={self.communicator.size} "
                    f"but processes={self.communicator.processes}"
                )
            if self.layout.scope == "global":
                raise ValueError(
                    "trainer.overlap needs scope=layer: with scope=global nothing can be "
                    "compressed before the whole gradient is there"
                )
            if self._is_analytic:
                raise ValueError("trainer.overlap needs a model with a backward pass, and this one has none")
        if self.settings.batch_size == 1 and any(isinstance(m, _NormBase) for m in self.model.modules()):
            raise ValueError("trainer.batch_size must be at least 2 for a model with BatchNorm, got 1")
        if isinstance(self.reducer, ErrorFeedback) and self.reducer.scale == "step":
            lowest = min(map(self._learning_rate_factor, range(self.num_steps)))
            require(lowest > 0, "the schedule", "positive in every step under feedback.scale=step", lowest)

    @property
    def _is_analytic(self) -> bool:
        return hasattr(self.model, "worker_gradients")

    @property
    def epochs_per_step(self) -> float:
        if self.settings.batch_size is None:
            return 1.0
        return self.communicator.size * self.settings.batch_size / len(self.dataset.train)

    @property
    def num_steps(self) -> int:
        if self.settings.steps is not None:
            return self.settings.steps
        return max(1, math.ceil(self.settings.epochs / self.epochs_per_step - 1e-9))

    def _learning_rate_factor(self, step: int) -> float:
        return self.schedule.factor(step * self.epochs_per_step, self.num_steps * self.epochs_per_step)

    def run(self, tracker: Tracker) -> dict[str, Any]:
        """Train; send records to ``tracker``; return the last, best and total values.

        Raises ``NonFiniteGradientError`` when a gradient is not finite.
        """
        settings, dataset, communicator = self.settings, self.dataset, self.communicator
        ledger = Ledger(self.layout, communicator)
        gradient_step = self._gradient_step(ledger)
        diagnose = getattr(self.model, "diagnostics", dict)
        base_rates = [group["lr"] for group in self.optimizer.param_groups]
        last: dict[str, float] = {}
        best: dict[str, float] = {}
        num_steps, epochs_per_step = self.num_steps, self.epochs_per_step
        num_epochs = num_steps * epochs_per_step
        self.model.train()
        start = diagnose()
        if start:
            tracker.log({"step": 0, "epoch": 0.0, **start})
        for step in range(num_steps):
            started = time.perf_counter()
            factor = self.schedule.factor(step * epochs_per_step, num_epochs)
            for group, rate in zip(self.optimizer.param_groups, base_rates, strict=True):
                group["lr"] = rate * factor
            done = step + 1
            finished = done == num_steps
            logged = finished or done % settings.log_every == 0
            losses = gradient_step.run(
                self.loader.batches(step), step, base_rates[0] * factor, measure=logged
            )
            reduced = time.perf_counter()
            self.optimizer.step()
            ended = time.perf_counter()

            epoch = done * epochs_per_step
            if logged:
                record = {
                    "step": done,
                    "epoch": epoch,
                    "train/loss": communicator.collect(losses.double()).mean().item(),
                    "train/learning_rate": base_rates[0] * factor,
                    **ledger.metrics(),
                    **diagnose(),
                    "time/step_seconds": ended - started,
                    "time/gradient_seconds": gradient_step.gradient_seconds,
                    "time/reduce_seconds": gradient_step.reduce_seconds,
                    "time/update_seconds": ended - reduced,
                }
                last.update(record)
                tracker.log(record)
            before = (epoch - epochs_per_step + 1e-9) // settings.evaluate_every
            if dataset.test is not None and (finished or (epoch + 1e-9) // settings.evaluate_every > before):
                quality = evaluate(self.model, dataset, communicator, settings.evaluation_batch_size)
                for name, value in quality.items():
                    better = max if name in dataset.task.higher_is_better else min
                    best[name] = better(best.get(name, value), value)
                last.update(quality)
                tracker.log({"step": done, "epoch": epoch, **quality})
        return {**last, "best": best, "layers": ledger.layers(), **self.facts()}

    def facts(self) -> dict[str, Any]:
        """What data, shards and model say of themselves: constants of the run that a reader needs."""
        found = {
            "data": _facts_of(self.dataset) | _facts_of(self.loader),
            "problem": _facts_of(self.model),
        }
        return {name: facts for name, facts in found.items() if facts}

    def _gradient_step(self, ledger: Ledger) -> GradientStep:
        model, layout, communicator, seed = self.model, self.layout, self.communicator, self.seed
        clip_norm = self.settings.clip_norm
        if self._is_analytic:
            shards = self.loader.whole()
            gradients = AnalyticGradients(model, shards, layout, communicator, clip_norm=clip_norm)
            return ExplicitStep(gradients, self.reducer, layout, communicator, ledger, seed=seed)
        loss = self.dataset.task.loss
        if self.settings.overlap:
            return OverlappedStep(model, loss, self.reducer, communicator, ledger, seed=seed)
        gradients = WorkerGradients(model, loss, layout, communicator, seed=seed, clip_norm=clip_norm)
        return ExplicitStep(gradients, self.reducer, layout, communicator, ledger, seed=seed)


def _facts_of(part: Any) -> dict[str, Any]:
    return part.facts() if hasattr(part, "facts") else {}
