"""Protocols of what a model, dataset or loader may offer beside what it must (``data.protocols``).

``isinstance`` asks for them, once per run: in Python 3.11 that takes up to 20 microseconds.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from data.protocols import Batches


class RecordLog(Protocol):
    """What takes the records of a training: the trackers of a run, or a script's own."""

    def log(self, record: dict[str, float]) -> None: ...


@runtime_checkable
class AnalyticModel(Protocol):
    """A model that writes down its gradient instead of having autograd find it."""

    def begin(self, shards: Batches) -> None:
        """Take a look at what the local workers hold, before the first step."""

    def worker_gradients(self, batches: Batches, out: Tensor, measure: bool) -> Tensor | None:
        """Write the gradients of the W local workers to ``out`` [W, D].

        Returns the losses [W], if ``measure`` asks for them.
        """


@runtime_checkable
class HasFacts(Protocol):
    """A part that a reader should know something of."""

    def facts(self) -> dict[str, object]:
        """Constants of the run by name, which JSON can hold."""


@runtime_checkable
class HasDiagnostics(Protocol):
    """A model that tells of itself in every record."""

    def diagnostics(self) -> dict[str, float]:
        """Metrics of the weights as they are."""


@runtime_checkable
class HasStepSize(Protocol):
    """A model that knows a learning rate for itself."""

    @property
    def step_size(self) -> float: ...


def facts_of(part: object) -> dict[str, object]:
    """What a part says of itself, if anything."""
    return part.facts() if isinstance(part, HasFacts) else {}
