"""The reducer that looks on: it lets another one work, and measures what the diagnostics ask for."""

import time
from typing import Any

import torch
from torch import Tensor

from compressors.api import Codec, Context, Reduced, Reducer, Segment, Shared
from compressors.feedback import ErrorFeedback
from compressors.magnitudes import Histogram
from trainers.communicator import Communicator
from trainers.diagnostics import Diagnostics
from trainers.gap import Drift
from trainers.ledger import Ledger
from trainers.look import Look
from trainers.staleness import Waiting


class Watch:
    """``inner``, watched. It goes around all else, error feedback too; like a ledger it keeps what it saw.

    Whatever it sends between processes is measurement and not charged. Raises ``ValueError`` when
    ``inner`` cannot give a diagnostic that is asked for.
    """

    def __init__(self, inner: Reducer, settings: Diagnostics) -> None:
        self.inner = inner
        self.settings = settings
        self.is_last = False  # whether the step to come is the last one
        self.innermost = innermost(inner)
        self.codec: Codec | None = getattr(self.innermost, "codec", None)  # None for a method that is none
        self.kernels = getattr(self.innermost, "kernels", "reference")
        self.feedback = inner if isinstance(inner, ErrorFeedback) else None
        self.latest: dict[str, float] = {}  # of the last step, if it was measured; the same on every process
        self.seconds = 0.0  # spent here in the last step, and on what is told after it
        self.waiting: Waiting | None = None
        self.drift: Drift | None = None
        self.histogram: Histogram | None = None
        if settings.xi is not None:
            settings.xi.require_codec(self.codec)
        if settings.bound is not None:
            settings.bound.require_codec(self.codec)
        if settings.staleness is not None:
            settings.staleness.require_residual(self.codec, self.feedback is not None)

    @property
    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold, [W, ...] by their names."""
        waits = self.waiting.waits._asdict() if self.waiting is not None else {}
        return waits | (self.histogram.magnitudes._asdict() if self.histogram is not None else {})

    @property
    def sums(self) -> dict[str, Shared]:
        """What a checkpoint must hold once for all workers, if anything, when it is settled."""
        return {"gap": Shared(self.drift.sums)} if self.drift is not None else {}

    def settle(self, communicator: Communicator) -> None:
        """Get ready to be saved; on all processes together."""
        if self.drift is not None:
            self.drift.settle(communicator)

    def take_over(self, communicator: Communicator) -> None:
        """Go on from what was put back."""
        if self.drift is not None:
            self.drift.take_over(communicator)

    def expect(self, done: int, *, is_last: bool) -> bool:
        """Whether the step to come, after which ``done`` steps are done, is measured; the last one is."""
        self.is_last = is_last
        return self.is_due(done)

    def is_due(self, done: int) -> bool:
        """Whether the step after which ``done`` steps are done is measured."""
        return self.is_last or done % self.settings.every == 0

    def init(self, segments: list[Segment]) -> Any:
        if self.settings.staleness is not None:
            self.waiting = Waiting(segments)
        if self.settings.gap is not None:
            self.drift = Drift(segments, self.kernels)
        if self.settings.hindsight is not None and not getattr(self.innermost, "lossless", False):
            self.histogram = Histogram(len(segments[0].rows), segments[0].rows.device)
        return self.inner.init(segments)

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Communicator
    ) -> tuple[Reduced, Any]:
        staleness = self.settings.staleness
        is_due = self.is_due(context.step + 1)
        self.latest, started = {}, time.perf_counter()
        if is_due:
            look, of_mean = self._before(segments, state, context, communicator)
        if self.drift is not None:
            self.drift.add_gradients(segments)
        if self.histogram is not None:
            carried = self.feedback.carried(segments, state, context) if self.feedback else segments
            self.histogram.add(carried, self.kernels)
        before = self._now(segments, is_due) - started
        told = context._replace(tell_positions=staleness is not None)
        reduced, state = self.inner.reduce(segments, state, told, communicator)
        started = self._now(segments, is_due)
        if self.drift is not None:
            self.drift.add_applied(segments, reduced)
        if staleness is not None:
            held = self.waiting.follow(segments, reduced, is_due)
        if is_due:
            if self.drift is not None:
                self.latest |= self.drift.measure(communicator)
            if self.settings.xi is not None:
                self.latest |= self.settings.xi.after(of_mean, look, reduced)
            if staleness is not None:
                waits, kernels = self.waiting.waits, self.kernels
                self.latest |= staleness.measure(waits, held, segments, reduced, communicator, kernels)
        self.seconds = before + self._now(segments, is_due) - started
        return reduced, state

    def of_run(self, ledger: Ledger) -> dict[str, float]:
        """What is told of all steps so far, once ``ledger`` has them."""
        if self.histogram is None:
            return {}
        started = time.perf_counter()
        found = self.settings.hindsight.measure(self.histogram.magnitudes, ledger)
        self.seconds += time.perf_counter() - started
        return found

    def _before(
        self, segments: list[Segment], state: Any, context: Context, communicator: Communicator
    ) -> tuple[Look, Any]:
        """What has to be measured while gradients and residuals are what they are."""
        settings, feedback = self.settings, self.feedback
        look = Look(
            segments=segments,
            residual=state.residual if feedback is not None else None,
            alpha=context.learning_rate if feedback is not None and feedback.scale == "step" else 1.0,
            communicator=communicator,
            kernels=self.kernels,
        )
        if settings.selection_error is not None:
            self.latest |= settings.selection_error.measure(look)
        codec = self._codec_of_step(segments, state, context, communicator)
        if settings.bound is not None:
            self.latest |= settings.bound.measure(look, codec)
        return look, settings.xi.before(
            look, codec, context, self.kernels
        ) if settings.xi is not None else None

    def _codec_of_step(
        self, segments: list[Segment], state: Any, context: Context, communicator: Communicator
    ) -> Codec | None:
        """C of the step to come, for a method whose C changes."""
        if not hasattr(self.innermost, "codec_of_step"):
            return self.codec
        own = state.inner if self.feedback is not None else state
        return self.innermost.codec_of_step(segments, own, context, communicator)

    @staticmethod
    def _now(segments: list[Segment], is_due: bool) -> float:
        if is_due and segments[0].rows.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def innermost(reducer: Any) -> Any:
    """What error feedback and measuring are wrapped around."""
    while hasattr(reducer, "inner"):
        reducer = reducer.inner
    return reducer
