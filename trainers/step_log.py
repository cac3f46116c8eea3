"""Log of a training's steps: choice of measured and recorded steps, and content of their records."""

from collections.abc import Callable

from compressors.build import threshold_in_force
from trainers.checkpoint.state import TrainingState
from trainers.diagnostics.probe import Probe
from trainers.files.goals import LINK_BYTES
from trainers.files.plain import Record
from trainers.network_model.step_costs import StepCosts
from trainers.parts import HasDiagnostics
from trainers.step.advance import Advance, Outcome
from trainers.threshold_watch import ThresholdWatch
from trainers.training import Training


class StepLog:
    """Sends records of steps to ``log``, and collects the costs of all steps.

    ``every_loss`` requests the loss of every step, including steps without a record.
    """

    def __init__(
        self,
        training: Training,
        state: TrainingState,
        advance: Advance,
        log: Callable[[Record], None],
        *,
        every_loss: bool,
    ) -> None:
        self.state = state
        self.advance = advance
        self.log = log
        self.every_loss = every_loss
        self.log_every = training.settings.log_every
        self.counts_skipped = training.settings.nonfinite == "skip"
        self.unit, self.read_per_step = training.read_per_step
        self.costs = StepCosts(training.reducer, training.layout, training.senders)
        model = training.model
        self._model_diagnostics: Callable[[], Record] = (
            model.diagnostics if isinstance(model, HasDiagnostics) else dict
        )
        self._probe: Probe | None = None  # the probe, if it measures the next step
        self._is_recorded = self._is_last = False
        threshold = threshold_in_force(training.reducer)
        self._watch = (
            ThresholdWatch(threshold, state, training.communicator) if threshold is not None else None
        )

    def start(self) -> None:
        """Record the model's diagnostics before the first step."""
        if found := self._model_diagnostics():
            self.log(self.state.note({"step": 0, "epoch": 0.0, **found}))

    def expect_step(self, is_last: bool) -> bool:
        """Choose the content of the next step's record; return whether its losses are requested."""
        done = self.state.step + 1
        probe = self.state.probe
        self._probe = probe if probe is not None and probe.expect(done, is_last=is_last) else None
        self._is_last = is_last
        self._is_recorded = is_last or self._probe is not None or done % self.log_every == 0
        return self._is_recorded or self.every_loss

    def record(self, outcome: Outcome | None, factor: float) -> float | None:
        """Record the last step if it is due; return its mean loss if requested.

        ``outcome`` is None for a skipped step.
        """
        state = self.state
        if self._watch is not None:
            self._watch.after_step(is_last=self._is_last)
        if outcome is None:
            self.log(state.note(self._record(None, None, factor)))
            return None
        if self._probe is None:
            self.costs.add(outcome.parts, state.ledger)
        if not (self._is_recorded or self.every_loss):
            return None
        loss = self.advance.mean_loss(outcome)
        if self._is_recorded:
            found = self._record(outcome, loss, factor)
            if self._is_last:
                state.last.clear()  # the summary has no value of an earlier step, as of a diagnostic now off
            self.log(state.note(found))
        return loss

    def cost_so_far(self) -> Record:
        """Link bytes for the record of an evaluation; empty if the last step's record has them."""
        if self._is_recorded:
            return {}
        return {LINK_BYTES: self.state.ledger.link_bytes_sent_total()}

    def _record(self, outcome: Outcome | None, loss: float | None, factor: float) -> Record:
        state, probe = self.state, self._probe
        record: Record = {"step": state.step, "epoch": state.epoch}
        if loss is not None:
            record["train/loss"] = loss
        record["train/learning_rate"] = self.advance.base_rates[0] * factor
        if self.counts_skipped:
            record["train/steps_skipped"] = state.skipped
        record |= {**state.ledger.metrics(), **self._model_diagnostics()}
        if state.ledger.steps > 0:
            # ``moved`` makes the steps of a checkpoint with other batches steps of this run.
            read = (state.ledger.steps + state.moved) * self.read_per_step
            record[f"comm/link_bytes_per_{self.unit}"] = record[LINK_BYTES] / read
        if outcome is not None:
            record |= {**state.gradient_step.measured, **outcome.times()}
            if probe is not None:
                record |= probe.latest
                record["time/reduce_seconds"] -= probe.seconds
        if probe is not None:
            record |= probe.of_run(state.ledger)
            if outcome is not None:
                record["time/diagnostics_seconds"] = probe.seconds
        return record
