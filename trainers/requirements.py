"""Requirements on the combination of settings, data, model and method of a training."""

import torch
from torch.nn.modules.batchnorm import _NormBase

from compressors.api import Plan
from compressors.build import plan_of
from data.protocols import fewest_samples
from trainers.identity.effects import (
    ANALYTIC,
    DEFAULTS,
    NO_CONVOLUTIONS,
    NOTHING_HELD_OUT,
    refuse_without_effect,
)
from trainers.local import fragments_of
from trainers.schedules.autolrs import AutoLRS
from trainers.schedules.learning_rate import check_rates, rates_of_epochs
from trainers.step.forward import require_bf16
from trainers.training import Training


def require_trainable(training: Training) -> None:
    """Raise ``ValueError`` for parts that cannot be trained together."""
    settings = training.settings
    if training.local is not None:
        _require_local_steps(training)
    if training.diagnostics.names:
        training.probe()  # refuses diagnostics that this method cannot have
    if any(isinstance(module, _NormBase) for module in training.model.modules()):
        if settings.samples_at_once == 1:
            name = "batch_size" if settings.micro_batch_size is None else "micro_batch_size"
            raise ValueError(f"trainer.{name} must be at least 2 for a model with BatchNorm, got 1")
        if settings.samples_at_once is None and fewest_samples(training.loader) == 1:
            raise ValueError("a model with BatchNorm needs at least 2 samples in each worker's data, got 1")
    _refuse_settings_without_effect(training)
    if settings.precision == "bf16":
        require_bf16(training.layout.device)
    lowest_rate = _lowest_rate(training)
    training.senders.declare_kinds(training.reducer.kinds)
    plan = _plan(training, lowest_rate)
    training.reducer.check(plan)
    if "MomentumCorrection" not in plan.feedback and any(
        group.get("decay_momentum") for group in training.optimizer.param_groups
    ):
        raise ValueError(
            "optimizer.decay_momentum needs feedback=momentum_correction, whose gradients have the same "
            "momentum: set optimizer=sgd or optimizer=plain_sgd"
        )


def _refuse_settings_without_effect(training: Training) -> None:
    """Raise ``ValueError`` for a setting without effect on these data or this model."""
    facts = {
        NOTHING_HELD_OUT: not training.dataset.held_out,
        NO_CONVOLUTIONS: all(parameter.dim() != 4 for parameter in training.model.parameters()),
        ANALYTIC: training.is_analytic,
    }
    settings = {f"trainer.{name}": value for name, value in vars(training.settings).items()}
    changed = [key for key, value in settings.items() if value != DEFAULTS.get(key)]
    refuse_without_effect(
        {"trainer": vars(training.settings)}, changed, {name for name, holds in facts.items() if holds}
    )


def _require_local_steps(training: Training) -> None:
    """Raise ``ValueError`` for settings that cannot be combined with local steps."""
    settings, local = training.settings, training.local
    assert local is not None
    if local.fragments > 1:
        for what, is_chosen in {
            "scope=global: a fragment is a set of layers": training.layout.scope == "global",
            "diagnostics, which need the whole gradient": bool(training.diagnostics.names),
        }.items():
            if is_chosen:
                raise ValueError(f"local.fragments={local.fragments} cannot be combined with {what}")
        fragments_of(training.layout.sizes, local.fragments)
        if training.num_steps < local.fragments:
            raise ValueError(
                f"local.fragments must be at most the number of steps, {training.num_steps}, got "
                f"{local.fragments}: some layers would never be exchanged"
            )
    combinations = {
        "trainer.nonfinite=skip: the moments of the local steps have changed already": (
            settings.nonfinite == "skip"
        ),
        "schedule=autolrs, which searches for the rate of every step": isinstance(training.schedule, AutoLRS),
        "a model with an analytic gradient, which has no weights for each worker": training.is_analytic,
    }
    for what, is_chosen in combinations.items():
        if is_chosen:
            raise ValueError(f"local=steps cannot be combined with {what}")


def _lowest_rate(training: Training) -> float:
    """The smallest factor on the base learning rate in any step."""
    if isinstance(training.schedule, AutoLRS):
        _check_search(training, training.schedule)
        return 1.0
    base_rate = max(group["lr"] for group in training.optimizer.param_groups)
    return check_rates(training.schedule, *training.scheduled, base_rate)


def _check_search(training: Training, search: AutoLRS) -> None:
    if search.validates and "validation" not in training.dataset.held_out:
        raise ValueError(
            f"schedule=autolrs uses the validation loss in trials of {search.validation_from} or more steps, "
            "but this dataset has no validation split: increase schedule.validation_from"
        )
    if search.plan(0, training.num_steps)[1] == 0:
        raise ValueError(
            f"schedule=autolrs needs at least {search.least_steps} steps, for {search.trials} trials and the "
            f"stage that uses their result, got {training.num_steps}"
        )


def _plan(training: Training, lowest_rate: float) -> Plan:
    """The settings of the training on which a method may have requirements."""
    optimizer = training.outer_optimizer()
    rates = rates_of_epochs(training.schedule, *training.scheduled)
    if training.local is not None:  # the outer optimizer has a constant rate
        lowest_rate = 1.0
    return plan_of(
        training.reducer,
        scope=training.layout.scope,
        optimizer="SGD" if isinstance(optimizer, torch.optim.SGD) else type(optimizer).__name__,
        momentum=max(group.get("momentum", 0.0) for group in optimizer.param_groups),
        rates=rates,
        lowest_rate=lowest_rate,
    )
