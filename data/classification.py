"""Classification datasets that fit in memory: batches, task, dataset and loader."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.partition import Sharing
from data.sampler import ShardLoader, shard_loader

# random map of [B, C, H, W] to the same shape and dtype
Augment = Callable[[Tensor, torch.Generator], Tensor]


class LabelledBatch(NamedTuple):
    """One worker's batch of samples."""

    inputs: Tensor  # [B, ...] float32; uint8 images before they are normalised
    targets: Tensor  # [B] int64, classes


class SampleArguments(TypedDict):
    """Keyword arguments of a model factory for labelled samples."""

    input_shape: tuple[int, ...]  # of one sample; (channels, height, width) of an image
    num_classes: int


@dataclass(frozen=True)
class Classification:
    """Task with one class per sample: cross entropy, and accuracy in [0, 1].

    A batch is a tuple of the model's inputs and, last, the targets.
    """

    num_sums = 3
    higher_is_better = frozenset({"accuracy"})

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...], memory: None = None) -> tuple[Tensor, None]:
        """Mean cross entropy over the batch."""
        *inputs, targets = batch
        return F.cross_entropy(model(*inputs), targets), None

    def measure(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """[3] float64: sum of losses, number of correct predictions, number of samples."""
        *inputs, targets = batch
        outputs = model(*inputs)
        loss = F.cross_entropy(outputs.double(), targets, reduction="sum")
        right = (outputs.argmax(1) == targets).sum().double()
        return torch.stack([loss, right, torch.full_like(loss, len(targets))])

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""
        loss, right, samples = sums.tolist()
        return {"loss": loss / samples, "accuracy": right / samples}


@dataclass(frozen=True)
class Split:
    """Samples in file order."""

    inputs: Tensor  # [N, ...], uint8 images or floats
    targets: Tensor  # [N] int64

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> Self:
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))


@dataclass(frozen=True, kw_only=True)
class ClassificationDataset:
    """Training and held-out samples on one device, normalised and augmented batch by batch.

    ``mean`` and ``std`` are per channel, of pixels in [0, 1]. Raises ``ValueError`` for a split without
    samples, and for labels that do not match the samples or the classes.
    """

    train: Split
    test: Split
    num_classes: int
    sharing: Sharing = Sharing()  # noqa: RUF009  frozen
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    augmentation: Augment | None = None
    validation: Split | None = None

    task = Classification()

    def __post_init__(self) -> None:
        for name, part in {"training": self.train, **self.held_out}.items():
            if not len(part.inputs) == len(part.targets) > 0:
                raise ValueError(
                    f"the {name} split must have a label for every sample and at least one, "
                    f"got {len(part.inputs)} samples and {len(part.targets)} labels"
                )
            low, high = part.targets.min().item(), part.targets.max().item()
            if low < 0 or high >= self.num_classes:
                raise ValueError(
                    f"labels must be 0 to {self.num_classes - 1}, got {low} to {high} in the {name} split"
                )

    @property
    def held_out(self) -> dict[str, Split]:
        """The held-out splits by name."""
        found = {"validation": self.validation, "test": self.test}
        return {name: part for name, part in found.items() if part is not None}

    def model_arguments(self) -> SampleArguments:
        """Keyword arguments that a model factory takes from the data."""
        return {"input_shape": tuple(self.train.inputs.shape[1:]), "num_classes": self.num_classes}

    def to(self, device: torch.device) -> Self:
        """A copy of the dataset with its samples on ``device``."""
        moved = {name: part.to(device) for name, part in self.held_out.items()}
        return replace(
            self, train=self.train.to(device), test=moved["test"], validation=moved.get("validation")
        )

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> ShardLoader:
        """Batches of the workers in ``local_workers``; raises like ``shard_loader``."""

        def read(indices: Tensor, step: int, worker: int) -> LabelledBatch:
            return self.train_batch(indices, generator_of("augment", step, worker))

        targets = self.train.targets.cpu()
        return shard_loader(read, targets, workers, local_workers, batch_size, generator_of, self.sharing)

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> LabelledBatch:
        """Normalised training samples at ``indices`` [B], augmented with draws from ``generator``."""
        return self._batch(self.train, indices, generator)

    def held_out_batch(self, split: str, indices: Tensor) -> LabelledBatch:
        """Normalised samples of the split ``split`` at ``indices`` [B]."""
        return self._batch(self.held_out[split], indices)

    def _batch(self, part: Split, indices: Tensor, generator: torch.Generator | None = None) -> LabelledBatch:
        indices = indices.to(part.targets.device, non_blocking=True)  # does not wait for the GPU
        inputs = part.inputs.index_select(0, indices)
        if generator is not None and self.augmentation is not None:
            inputs = self.augmentation(inputs, generator)
        return LabelledBatch(normalise(inputs, self.mean, self.std), part.targets.index_select(0, indices))


def normalise(inputs: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(inputs - mean) / std of samples [B, C, ...], by channel; ``inputs`` is not modified.

    uint8 inputs are divided by 255 before.
    """
    shape = (-1, *[1] * (inputs.dim() - 2))
    means, stds = (torch.tensor(own).to(inputs.device, non_blocking=True).view(shape) for own in (mean, std))
    is_bytes = inputs.dtype == torch.uint8
    return (inputs.float().div_(255).sub_(means) if is_bytes else inputs.sub(means)).div_(stds)


def require_labels(path: Path, labels: Tensor, num_classes: int) -> None:
    """Raise ``ValueError`` if ``labels`` [N], read from ``path``, are not all in [0, num_classes)."""
    if labels.max() >= num_classes:
        raise ValueError(f"{path} must hold labels from 0 to {num_classes - 1}, got {labels.max().item()}")
