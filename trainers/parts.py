"""Protocols of optional features of models, datasets and loaders; ``data.protocols`` has the required ones.

They are checked by ``isinstance``, once per run: in Python 3.11 a check takes up to 20 microseconds.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from data.protocols import Batches


class RecordLog(Protocol):
    """Receiver of a training's records: the trackers of a run, or an object of a script."""

    def log(self, record: dict[str, float]) -> None: ...


@runtime_checkable
class AnalyticModel(Protocol):
    """A model that computes its gradient by a formula instead of autograd."""

    def begin(self, shards: Batches) -> None:
        """Read the local workers' data before the first step."""

    def worker_gradients(self, batches: Batches, out: Tensor, measure: bool) -> Tensor | None:
        """Write the gradients of the W local workers to ``out`` [W, D].

        Returns the losses [W] if ``measure``.
        """


@runtime_checkable
class HasFacts(Protocol):
    """A part of a training with facts for the reader of a run."""

    def facts(self) -> dict[str, object]:
        """Constants of the run by name, as JSON values."""


@runtime_checkable
class HasDiagnostics(Protocol):
    """A model with metrics for every record."""

    def diagnostics(self) -> dict[str, float]:
        """Metrics of the current weights."""


@runtime_checkable
class HasStepSize(Protocol):
    """A model with its own learning rate."""

    @property
    def step_size(self) -> float: ...


def facts_of(part: object) -> dict[str, object]:
    """The facts of a part, if it has any."""
    return part.facts() if isinstance(part, HasFacts) else {}
