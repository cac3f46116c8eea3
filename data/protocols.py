"""Protocols of dataset, loader and task, as used by the trainer.

``conf/data/*.yaml`` names a factory that returns a ``Dataset``. The dataset's ``Loader`` gives the training
batches of the local workers. The dataset's ``Task`` computes the loss of a batch; only the task reads a
batch's fields. n is the number of workers of the experiment, W the number of workers in this process, B the
number of samples in a batch.
"""

from collections.abc import Callable, Mapping, Sized
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

# A NamedTuple whose tensors hold one sample per entry of their first dimension. Fields that are not tensors
# apply to all samples. A dataset or its loader makes it, the task reads it.
Batch = Any
Batches = Any  # of the W local workers: a list of W batches, or the input of a model with its own gradient
Carry = Any  # state that a worker carries to its next batch: tensors in tuples, lists and dicts, or None


class Task(Protocol):
    """Training loss and evaluation metrics. Names of metrics do not contain the split."""

    @property
    def num_sums(self) -> int:
        """Length of the tensor that ``measure`` returns."""

    @property
    def higher_is_better(self) -> frozenset[str]:
        """Names of the metrics whose higher value is better. For all others a lower value is better."""

    def loss(self, model: nn.Module, batch: Batch, memory: Carry) -> tuple[Tensor, Carry]:
        """Mean loss over a worker's training batch, a scalar, and the state for the worker's next batch.

        ``memory`` is the state after the worker's last batch, detached from the graph. It is None in the
        first step, and always None if batches are independent.
        """

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sums over a held-out batch, [num_sums] float64, such as losses, correct predictions and samples."""

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics by name, from the sum of ``measure`` over all batches of a split."""


class Loader(Protocol):
    """Training batches of the local workers."""

    @property
    def epochs_per_step(self) -> float:
        """Fraction of an epoch that one step of all n workers reads."""

    def batches(self, step: int) -> Batches:
        """Batches of the W local workers in ``step``, counted from 0; they depend on ``step`` alone.

        A loader with ``reads_files`` may raise ``OSError`` for a file that cannot be read.
        """


@runtime_checkable
class WholeLoader(Loader, Protocol):
    """A loader that can also return all samples of the local workers at once."""

    def whole(self) -> Batches:
        """Every sample of the W local workers' shards."""


class Dataset(Protocol):
    """Training samples, to be split over n workers, held-out samples, and their task.

    A dataset may also have ``facts()``, recorded with a run, and ``reads_files`` (``ReadsFiles``).
    """

    @property
    def task(self) -> Task | None:
        """The task, or None if nothing is held out and models compute their own loss and gradient."""

    @property
    def train(self) -> Sized:
        """The training samples."""

    @property
    def held_out(self) -> Mapping[str, Sized]:
        """Samples by split, "validation" or "test"; empty if nothing is held out."""

    def model_arguments(self) -> Mapping[str, Any]:
        """Keyword arguments of a model's factory beside its settings, such as shapes and class counts.

        The return type is a TypedDict, so the names are known without loading data.
        """

    def to(self, device: torch.device) -> Self:
        """A copy of the dataset with its batches on ``device``."""

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> Loader:
        """The loader of the workers in ``local_workers``; ``workers`` is n.

        ``batch_size`` is B of one worker; None means its whole shard. ``generator_of(*salt)`` returns a
        random generator; a worker's draws depend on the salt alone, never on the process. Raises
        ``ValueError`` for more workers than samples and for a batch larger than any worker's shard.
        """

    def held_out_batch(self, split: str, indices: Tensor) -> Batch:
        """The samples of ``split`` at ``indices`` [B] int64, in this order."""


@runtime_checkable
class ReadsFiles(Protocol):
    """A loader or dataset that states whether it reads files during the training. Such reads may fail."""

    @property
    def reads_files(self) -> bool: ...


def reads_files(data: object) -> bool:
    """Whether a loader or dataset reads files during the training."""
    return isinstance(data, ReadsFiles) and data.reads_files


@runtime_checkable
class ReadsTokens(Protocol):
    """A loader of text that may know how many tokens a worker reads in a step."""

    @property
    def tokens_per_step(self) -> float | None:
        """Mean over workers and steps; None if it is not known."""


def tokens_per_step(loader: Loader) -> float | None:
    """Tokens that a worker reads in a step, mean over workers and steps; None for other data than text."""
    return loader.tokens_per_step if isinstance(loader, ReadsTokens) else None


@runtime_checkable
class ReadsShards(Protocol):
    """A loader of one shard for each worker."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Samples of the smallest and of the largest shard of all n workers."""


def fewest_samples(loader: Loader) -> int | None:
    """Samples of the smallest shard; None if it is not known."""
    return loader.sizes[0] if isinstance(loader, ReadsShards) else None


def task_of(dataset: Dataset) -> Task:
    """The dataset's task. Raises ``AssertionError`` if it has none."""
    assert dataset.task is not None, (
        f"{type(dataset).__name__} has no task: its models compute their own loss"
    )
    return dataset.task
