"""Sentence classification in memory: dataset, batches and task."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypedDict

import torch
from torch import Tensor

from data.classification import Classification
from data.partition import Sharing
from data.sampler import ShardLoader, shard_loader


class SentenceBatch(NamedTuple):
    """One worker's batch of sentences, padded to the longest of them."""

    tokens: Tensor  # [B, T] int64
    mask: Tensor  # [B, T] bool, False for padding
    targets: Tensor  # [B] int64


class SentenceArguments(TypedDict):
    """Keyword arguments of a model factory for labelled sentences."""

    vocabulary_size: int
    num_classes: int
    max_length: int  # units in the longest sentence


@dataclass(frozen=True)
class SentenceSplit:
    """Sentences in file order."""

    tokens: Tensor  # [N, T] int32
    lengths: Tensor  # [N] int64, on the CPU, so that cutting a batch needs no GPU synchronisation
    targets: Tensor  # [N] int64

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> Self:
        return replace(self, tokens=self.tokens.to(device), targets=self.targets.to(device))

    def batch(self, indices: Tensor) -> SentenceBatch:
        """The batch of sentences at ``indices`` [B]."""
        lengths = self.lengths[indices.cpu()]
        longest = int(lengths.max())
        device = self.tokens.device
        indices = indices.to(device, non_blocking=True)
        tokens = self.tokens[:, :longest].index_select(0, indices).long()
        mask = torch.arange(longest, device=device) < lengths.to(device, non_blocking=True)[:, None]
        return SentenceBatch(tokens, mask, self.targets.index_select(0, indices))


@dataclass(frozen=True, kw_only=True)
class SentenceDataset:
    """Training and validation sentences on one device.

    Raises ``ValueError`` for a split without sentences.
    """

    train: SentenceSplit
    held_out: dict[str, SentenceSplit]
    vocabulary_size: int
    num_classes: int
    max_length: int
    sharing: Sharing

    task = Classification()

    def __post_init__(self) -> None:
        for name, part in {"training": self.train, **self.held_out}.items():
            if len(part) == 0:
                raise ValueError(f"the {name} split must have at least one sentence, got 0")

    def model_arguments(self) -> SentenceArguments:
        """Keyword arguments that a model factory takes from the data."""
        return {
            "vocabulary_size": self.vocabulary_size,
            "num_classes": self.num_classes,
            "max_length": self.max_length,
        }

    def facts(self) -> dict[str, Any]:
        """Facts about the data, for summary.json."""
        held_out = {f"{name}_sentences": len(part) for name, part in self.held_out.items()}
        tokens = self.train.lengths.double().mean().item()
        return {"train_sentences": len(self.train), **held_out, "tokens_per_sentence": round(tokens, 1)}

    def to(self, device: torch.device) -> Self:
        """A copy of the dataset with its sentences on ``device``."""
        held_out = {name: part.to(device) for name, part in self.held_out.items()}
        return replace(self, train=self.train.to(device), held_out=held_out)

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> ShardLoader:
        """Batches of the workers in ``local_workers``; raises like ``shard_loader``."""

        def read(indices: Tensor, step: int, worker: int) -> SentenceBatch:
            return self.train.batch(indices)

        targets = self.train.targets.cpu()
        return shard_loader(read, targets, workers, local_workers, batch_size, generator_of, self.sharing)

    def held_out_batch(self, split: str, indices: Tensor) -> SentenceBatch:
        """Sentences of the split ``split`` at ``indices`` [B]."""
        return self.held_out[split].batch(indices)
