"""Tasks: the loss to train with, and the metrics of quality."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Task(Protocol):
    """A loss to train on and metrics to judge by.

    Batches are NamedTuples whose tensors hold one sample per entry of their first dimension; fields
    that are no tensors concern them all. Metrics are named without the split they are taken on.
    """

    num_sums: int
    higher_is_better: frozenset[str]

    def loss(self, model: nn.Module, batch: Any, memory: Any) -> tuple[Tensor, Any]:
        """Mean loss over a worker's batch, and what the worker's next batch starts from.

        ``memory`` is what came of the worker's last batch, without its graph; None at first, and always
        None for a task whose batches stand by themselves.
        """

    def measure(self, model: nn.Module, batch: Any) -> Tensor:
        """Sums over a batch of held-out samples, [num_sums] float64."""

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""


class Batch(NamedTuple):
    """Samples of one worker."""

    inputs: Tensor  # [B, ...]
    targets: Tensor  # [B] int64


@dataclass(frozen=True)
class Classification:
    """One of several classes per sample: cross entropy, accuracy in [0, 1]."""

    num_sums = 3
    higher_is_better = frozenset({"accuracy"})

    def loss(self, model: nn.Module, batch: Batch, memory: None = None) -> tuple[Tensor, None]:
        """Mean cross entropy over the batch."""
        return F.cross_entropy(model(batch.inputs), batch.targets), None

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """[3] float64: sum of losses, number right, number of samples."""
        outputs = model(batch.inputs)
        loss = F.cross_entropy(outputs.double(), batch.targets, reduction="sum")
        right = (outputs.argmax(1) == batch.targets).sum().double()
        return torch.stack([loss, right, torch.full_like(loss, len(batch.targets))])

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""
        loss, right, samples = sums.tolist()
        return {"loss": loss / samples, "accuracy": right / samples}
