"""Interfaces of what a trainer is given: task, dataset, loader, and what these and a model may offer beside.

What is optional is asked for by ``isinstance`` of a Protocol, once per run: in Python 3.11 that takes up to
20 microseconds.
"""

from collections.abc import Mapping, Sized
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

# Made by a dataset, understood by its task; a trainer hands them on. A batch is a NamedTuple whose tensors
# hold one sample per entry of their first dimension; fields that are no tensors concern them all.
Batch = Any
Batches = Any  # of the W local workers: a list of batches, or what ``AnalyticModel`` takes for them all
Carry = Any  # what a worker's next batch starts from: tensors in tuples, lists and dicts, or None


class RecordLog(Protocol):
    """What takes the records of a training: the trackers of a run, or a script's own."""

    def log(self, record: dict[str, float]) -> None: ...


class Task(Protocol):
    """A loss to train on and metrics to judge by, named without the split that they are taken on."""

    @property
    def num_sums(self) -> int:
        """How many sums ``measure`` takes."""

    @property
    def higher_is_better(self) -> frozenset[str]:
        """The metrics of which that holds."""

    def loss(self, model: nn.Module, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        """Mean loss over a worker's batch, and the carry that its next one starts from; None at first."""

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sums over a batch of held-out samples, [num_sums] float64."""

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""


class Dataset(Protocol):
    """What is trained for, and what is held out to test on."""

    @property
    def task(self) -> Task: ...

    @property
    def held_out(self) -> Mapping[str, Sized]:
        """Samples by split; empty where nothing is held out."""

    def held_out_batch(self, split: str, indices: Tensor) -> Batch:
        """These samples of a split."""


class Loader(Protocol):
    """What the local workers read."""

    @property
    def epochs_per_step(self) -> float:
        """The share of an epoch that a step of all workers is."""

    def batches(self, step: int) -> Batches:
        """Of the W local workers; they follow from the step, counted from 0."""


@runtime_checkable
class WholeLoader(Loader, Protocol):
    """A loader that can also give all that the local workers hold, at once."""

    def whole(self) -> Batches: ...


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


@runtime_checkable
class ReadsFiles(Protocol):
    """A loader or dataset that says whether it reads files during the training, which may fail."""

    @property
    def reads_files(self) -> bool: ...


def reads_files(data: object) -> bool:
    """Whether reading from ``data`` can fail."""
    return isinstance(data, ReadsFiles) and data.reads_files


def facts_of(part: object) -> dict[str, object]:
    """What a part says of itself, if anything."""
    return part.facts() if isinstance(part, HasFacts) else {}
