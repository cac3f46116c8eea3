"""Protocols of dataset, loader and task, as used by the trainer.

``conf/data/*.yaml`` names a factory that returns a ``Dataset``. The trainer asks it for a ``Loader``, which
gives the training batches of the local workers, and hands each batch to the dataset's ``Task``, which knows
what is in it. n is the number of workers of the experiment, W the number of those in this process, B the
number of samples in a batch.
"""

from collections.abc import Callable, Mapping, Sized
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

# A NamedTuple whose tensors hold one sample per entry of their first dimension; fields that are no tensors
# concern all of them. Made by a dataset or its loader, read by its task.
Batch = Any
Batches = Any  # of the W local workers: a list of W batches, or what a model with its own gradient takes
Carry = Any  # what a worker's next batch starts from: tensors in tuples, lists and dicts, or None


class Task(Protocol):
    """A loss to train on and metrics to judge by, named without the split that they are taken on."""

    @property
    def num_sums(self) -> int:
        """Length of what ``measure`` returns."""

    @property
    def higher_is_better(self) -> frozenset[str]:
        """Names of the metrics of which a higher value is better; of all others a lower one is."""

    def loss(self, model: nn.Module, batch: Batch, memory: Carry) -> tuple[Tensor, Carry]:
        """Mean loss over a worker's training batch, a scalar, and what the worker's next batch starts from.

        ``memory`` is what the worker's last batch left, without its graph: None in the first step, and always
        None where batches do not continue one another.
        """

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sums over a held-out batch, [num_sums] float64, such as losses, right answers and samples."""

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics by name, from the sum of ``measure`` over all batches of a split."""


class Loader(Protocol):
    """Training batches of the local workers."""

    @property
    def epochs_per_step(self) -> float:
        """The share of an epoch that one step of all n workers reads."""

    def batches(self, step: int) -> Batches:
        """What the W local workers read in ``step``, counted from 0; it depends on the step alone.

        Raises ``OSError`` for a file that cannot be read, if ``reads_files``.
        """


@runtime_checkable
class WholeLoader(Loader, Protocol):
    """A loader that can also give all samples of the local workers at once."""

    def whole(self) -> Batches:
        """Every sample of the W local workers' shards."""


class Dataset(Protocol):
    """Training samples, split over n workers, and held-out samples, with the task that reads them.

    A dataset may also have ``facts()``, recorded with a run, and ``reads_files`` (``ReadsFiles``).
    """

    @property
    def task(self) -> Task | None:
        """None where nothing is held out and models compute their own loss and gradient."""

    @property
    def train(self) -> Sized:
        """The training samples."""

    @property
    def held_out(self) -> Mapping[str, Sized]:
        """Samples by split, "validation" or "test"; empty where nothing is held out."""

    def model_arguments(self) -> Mapping[str, Any]:
        """What a model's factory is called with beside its settings, such as shapes and class counts.

        The return type is a TypedDict, from which the names are known without data.
        """

    def to(self, device: torch.device) -> Self:
        """The same dataset with its batches on ``device``."""

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> Loader:
        """The batches of the workers in ``local_workers``, of all n ``workers``.

        ``batch_size`` is B of one worker; None takes its whole shard. ``generator_of(*salt)`` gives a random
        generator for each salt; what a worker draws depends on the salt alone, never on the process. Raises
        ``ValueError`` for more workers than samples and for a batch larger than any worker's shard.
        """

    def held_out_batch(self, split: str, indices: Tensor) -> Batch:
        """The samples at ``indices`` [B] int64 of that split, in this order."""


@runtime_checkable
class ReadsFiles(Protocol):
    """A loader or dataset that states whether it reads files during the training, which may fail."""

    @property
    def reads_files(self) -> bool: ...


def reads_files(data: object) -> bool:
    """Whether a loader or dataset reads files during the training."""
    return isinstance(data, ReadsFiles) and data.reads_files


def task_of(dataset: Dataset) -> Task:
    """The task of a dataset that has one."""
    assert dataset.task is not None, f"{type(dataset).__name__} is for models with a loss of their own"
    return dataset.task
