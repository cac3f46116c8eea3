"""The training loop, from the first batch to the summary."""

from compressors.build import threshold_in_force
from data.protocols import task_of
from trainers.checkpoint.fit import require_fit
from trainers.checkpoint.saving import Checkpoints
from trainers.checkpoint.state import TrainingState
from trainers.parts import RecordLog
from trainers.schedules.autolrs import AutoLRS
from trainers.schedules.autolrs_controller import AutoLRSController
from trainers.schedules.learning_rate import ScheduleController
from trainers.step.advance import Advance
from trainers.step.gradients import NonFiniteGradientError, require_finite_weights
from trainers.step_log import StepLog
from trainers.training import Training


def run(training: Training, records: RecordLog, checkpoints: Checkpoints | None = None) -> dict[str, object]:
    """Train; send records to ``records``; return the last, best and total values.

    With ``checkpoints``, the training continues from their start and is saved there. Raises
    ``NonFiniteGradientError`` for a gradient that is not finite (with trainer.nonfinite=skip, for too
    many such steps in sequence) and for a weight that is not, ``UnreadableDataError`` for a batch that
    cannot be read, and ``StoppedError`` after a request to stop.
    """
    state = training.new_state()
    advance = Advance(state, training.loader, training.communicator)
    if checkpoints is not None and checkpoints.start is not None:
        require_fit(state, checkpoints.start, training.loader, training.carries_after)
        state.restore(checkpoints.start)
        checkpoints.start = None  # frees its memory
    is_fresh = state.step == 0 and not state.search  # the controller fills ``search``
    controller = _controller(training, state, advance, records, checkpoints)
    log = StepLog(training, state, advance, records.log, every_loss=controller.needs_losses)
    training.model.train()
    if is_fresh:
        log.start()
    while controller.steps_left() > 0:
        factor = controller.factor()  # on the base learning rates
        is_last = controller.steps_left() == 1
        began_at = state.epoch
        measure = log.expect_step(is_last)
        try:
            outcome = advance(factor, measure=measure)
        except NonFiniteGradientError as error:
            require_finite_weights(training.layout, state.step)  # such weights make no finite gradient again
            advance.skip(error, training.settings.nonfinite)
            outcome = None
        if is_last:
            require_finite_weights(training.layout, state.step)
        controller.observe(log.record(outcome, factor))
        if training.is_evaluated(began_at, state.epoch, is_last):
            place = state.note({"step": state.step, "epoch": state.epoch, **log.cost_so_far()})
            records.log({**place, **_evaluate(training, state)})
        if checkpoints is not None and not is_last:
            checkpoints.after_step(state)
    if checkpoints is not None:
        checkpoints.at_end(state)
    totals = {**state.last, **controller.summary(), **log.costs.summary()}
    threshold = threshold_in_force(training.reducer)
    if threshold is not None:
        totals["compression/threshold"] = threshold
    return {**totals, "best": state.best, "layers": state.ledger.layers(), **training.facts()}


def _controller(
    training: Training,
    state: TrainingState,
    advance: Advance,
    records: RecordLog,
    checkpoints: Checkpoints | None,
) -> ScheduleController | AutoLRSController:
    if not isinstance(training.schedule, AutoLRS):
        return ScheduleController(training.factor_at, state, training.num_steps)

    def validate() -> float:
        return training.measure(training.model)["validation/loss"]

    settings, communicator = training.schedule, training.communicator
    return AutoLRSController(
        settings, state, training.num_steps, advance, communicator, validate, records.log, checkpoints
    )


def _evaluate(training: Training, state: TrainingState) -> dict[str, float]:
    """Evaluate the last weights, their average and the mean of the workers' weights, if there are any.

    The best values are kept in ``state``.
    """
    quality = training.measure(state.model)
    if state.average is not None:
        of_average = training.measure(state.average.model)
        quality |= {f"average/{name}": value for name, value in of_average.items()}
    if state.local is not None:
        with state.local.mean_weights():
            of_mean = training.measure(state.model)
        quality |= {f"workers_mean/{name}": value for name, value in of_mean.items()}
    quality = state.note(quality)
    for name, value in quality.items():
        better = max if name.split("/")[-1] in task_of(training.dataset).higher_is_better else min
        state.best[name] = better(state.best.get(name, value), value)
    return quality
