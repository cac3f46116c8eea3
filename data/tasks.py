"""What is trained for, and how its quality is measured."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Batch(NamedTuple):
    """Samples of one worker."""

    inputs: Tensor  # [B, ...]
    targets: Tensor  # [B] int64


@dataclass(frozen=True)
class Classification:
    """One of several classes per sample: cross entropy, accuracy in [0, 1]."""

    num_sums = 3
    higher_is_better = frozenset({"test/accuracy"})

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean cross entropy over the batch."""
        return F.cross_entropy(model(batch.inputs), batch.targets)

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """[3] float64: sum of losses, number right, number of samples."""
        outputs = model(batch.inputs)
        loss = F.cross_entropy(outputs.double(), batch.targets, reduction="sum")
        right = (outputs.argmax(1) == batch.targets).sum().double()
        return torch.stack([loss, right, torch.full_like(loss, len(batch.targets))])

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""
        loss, right, samples = sums.tolist()
        return {"test/loss": loss / samples, "test/accuracy": right / samples}
