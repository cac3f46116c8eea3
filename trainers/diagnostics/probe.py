"""The probe: a wrapper that observes a reducer for the diagnostics."""

import time

import torch
from torch import Tensor

from compressors import api
from compressors.api import Input, Reduced, Reducer, Segment, Shared, State, Step, Wrapper
from compressors.feedback import ErrorFeedback
from compressors.feedback.scale import scale_of
from compressors.kernels.choice import backend_of
from compressors.parts.magnitudes import Histogram
from trainers.comm.clock import now
from trainers.comm.communicator import Communicator
from trainers.diagnostics.gap import Drift
from trainers.diagnostics.settings import Diagnostics
from trainers.diagnostics.staleness import Waiting
from trainers.diagnostics.step_input import StepInput
from trainers.step.ledger import Ledger


class Probe(Wrapper):
    """Wrapper around ``inner``, including its feedback, that measures diagnostics and keeps their state.

    Its own communication is not charged. Raises ``ValueError`` if ``inner`` does not support a requested
    diagnostic.
    """

    def __init__(self, inner: Reducer, settings: Diagnostics) -> None:
        self.inner = inner
        self.settings = settings
        self.is_last = False  # whether the next step is the last one
        self.latest: dict[str, float] = {}  # metrics of the last step, if measured; equal on every process
        self.seconds = 0.0  # time of the diagnostics for the last step
        self.waiting: Waiting | None = None
        self.drift: Drift | None = None
        self.histogram: Histogram | None = None
        if settings.xi is not None:
            settings.xi.require_codec(inner)
        if settings.bound is not None:
            settings.bound.require_lossy(inner)
        if settings.staleness is not None:
            settings.staleness.require_residual(inner)

    @property
    def state(self) -> dict[str, Tensor]:
        """State for a checkpoint, [W, ...] by name."""
        waits = self.waiting.waits._asdict() if self.waiting is not None else {}
        return waits | (self.histogram.magnitudes._asdict() if self.histogram is not None else {})

    @property
    def sums(self) -> dict[str, Shared]:
        """State that a checkpoint contains once for all workers, if any, after ``settle``."""
        return {"gap": Shared(self.drift.sums)} if self.drift is not None else {}

    def settle(self, communicator: Communicator) -> None:
        """Prepare for a checkpoint; all processes call it together."""
        if self.drift is not None:
            self.drift.settle(communicator)

    def take_over(self, communicator: Communicator) -> None:
        """Continue from a restored state."""
        if self.drift is not None:
            self.drift.take_over(communicator)

    def expect(self, done: int, *, is_last: bool) -> bool:
        """Announce the next step, number ``done`` from 1; return whether it is measured. The last step is."""
        self.is_last = is_last
        return self.is_due(done)

    def is_due(self, done: int) -> bool:
        """Whether the step after which ``done`` steps are done is measured."""
        return self.is_last or done % self.settings.every == 0

    def init(self, segments: list[Segment]) -> State:
        if self.settings.staleness is not None:
            self.waiting = Waiting(segments)
        if self.settings.gap is not None:
            self.drift = Drift(segments)
        if self.settings.hindsight is not None and not self.traits.lossless:
            self.histogram = Histogram(len(segments[0].rows), segments[0].rows.device)
        return self.inner.init(segments)

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: api.Communicator
    ) -> tuple[Reduced, State]:
        assert isinstance(communicator, Communicator)  # a trainer's, which also has uncharged collectives
        settings, started = self.settings, time.perf_counter()
        is_due = self.is_due(step.number + 1)
        segments = [given.segment for given in inputs]
        device = segments[0].rows.device if is_due else torch.device("cpu")  # others do not wait for a GPU
        carried = self.carried(inputs, state, step)
        self.latest = {}
        if is_due:
            given = self._before(segments, carried, communicator)
            seen = [_copied(given) for given in carried] if settings.bound is not None else []
        if self.drift is not None:
            self.drift.add_gradients(segments)
        if self.histogram is not None:
            backend_of(segments[0].rows.device).count_magnitudes(carried, self.histogram)
        before = now(device) - started
        reduced, state = self.inner.reduce(inputs, state, step, communicator)
        started = now(device)
        if self.drift is not None:
            self.drift.add_applied(segments, reduced)
            self.drift.add_bounds(segments, reduced, step, _rate_of(self.inner, step))
        held = self.waiting.follow(segments, reduced, is_due) if self.waiting is not None else None
        if is_due:
            if self.drift is not None:
                self.latest |= self.drift.measure(communicator)
            if settings.bound is not None:
                self.latest |= settings.bound.measure(seen, reduced, step, communicator)
            if settings.xi is not None:
                self.latest |= settings.xi.measure(given, reduced, step)
            if settings.staleness is not None and self.waiting is not None and held is not None:
                waits = self.waiting.waits
                self.latest |= settings.staleness.measure(waits, held, segments, reduced, communicator)
        self.seconds = before + now(device) - started
        return reduced, state

    def of_run(self, ledger: Ledger) -> dict[str, float]:
        """Metrics over all steps so far, after ``ledger`` has recorded them."""
        if self.settings.hindsight is None or self.histogram is None:
            return {}
        started = time.perf_counter()
        found = self.settings.hindsight.measure(self.histogram.magnitudes, ledger)
        self.seconds += time.perf_counter() - started
        return found

    def _before(self, segments: list[Segment], carried: list[Input], communicator: Communicator) -> StepInput:
        """Measurements before the reduction changes gradients and residuals."""
        given = StepInput(segments=segments, carried=carried, communicator=communicator)
        if self.settings.selection_error is not None:
            self.latest |= self.settings.selection_error.measure(given)
        if self.settings.xi is not None:
            _ = given.mean_input, given.mean_gradient  # computes the cached properties
        return given


def _rate_of(reducer: Reducer, step: Step) -> float | None:
    """The factor of the gradient in p = e + factor g; None unless e' = p - C(p) and m is the mean of C(p).

    The sum of G - m is then the mean residual; a decay of e, or a mean over senders, adds to it.
    """
    if type(reducer) is not ErrorFeedback or reducer.beta < 1 or reducer.traits.of_senders:
        return None
    return scale_of(reducer.scale, step)


def _copied(given: Input) -> Segment:
    """A segment with a copy of p, [W, d]."""
    seen = given.seen()
    return seen._replace(rows=seen.rows.clone()) if given.memory is None else seen
