"""Masked language modelling: prediction of units of a text from the units on both sides.

Devlin et al., 2019, https://arxiv.org/abs/1810.04805: of the units to predict, 80 % are replaced by
``[MASK]``, 10 % by a random unit, and 10 % stay. Deviation from the paper: blocks cross the ends of
lines, and there is no next-sentence task.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.checks import require_count, shown
from data.files import path_of
from data.partition import Sharing
from data.sampler import ShardLoader, shard_loader
from data.text.corpora import Corpus
from data.text.wordpiece import END, MASK, START, UNKNOWN, WordPiece

_REPLACED, _RANDOM = 0.8, 0.1


class MaskedBatch(NamedTuple):
    """One worker's batch of blocks with units to predict."""

    tokens: Tensor  # [B, T] int64
    positions: Tensor  # [B, M] int64, positions of the units to predict
    targets: Tensor  # [B, M] int64


class MaskedArguments(TypedDict):
    """Keyword arguments of a model factory for blocks of text."""

    vocabulary_size: int
    masked: bool  # True: the model predicts masked units
    max_length: int  # T, units in a block


@dataclass(frozen=True)
class MaskedUnits:
    """Mean cross entropy per unit to predict, and perplexity, its exponential."""

    num_sums = 2
    higher_is_better: ClassVar[frozenset[str]] = frozenset()

    def loss(self, model: nn.Module, batch: MaskedBatch, memory: None) -> tuple[Tensor, None]:
        """Mean loss over the units to predict; no state is carried."""
        logits = model(batch.tokens, batch.positions)
        return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), None

    def measure(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        """[2] float64: sum of losses and number of units to predict."""
        logits = model(batch.tokens, batch.positions).flatten(0, 1).float()
        losses = F.cross_entropy(logits, batch.targets.flatten(), reduction="none")
        total = losses.double().sum()
        return torch.stack([total, torch.full_like(total, len(losses))])

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""
        loss = sums[0] / sums[1]
        return {"loss": loss.item(), "perplexity": loss.exp().item()}


@dataclass(frozen=True, kw_only=True)
class MaskedDataset:
    """Training, validation and test blocks [N, T] int32, each ``[CLS] units [SEP]``.

    A training block gets a new mask each time it is read, from its worker's generator; a held-out block
    always has the same mask. Raises ``ValueError`` for a split without a full block, and for a partition
    that needs labels.
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    vocabulary: WordPiece
    masked_share: float
    partition: str
    extra_facts: dict[str, Any]  # facts besides the sizes, for summary.json
    held_out: dict[str, "HeldOutBlocks"] = field(init=False)

    task = MaskedUnits()
    objective = "masked"

    def __post_init__(self) -> None:
        if self.partition not in ("iid", "contiguous"):
            raise ValueError(
                "data.partition must be iid or contiguous for blocks of text, which have no labels, "
                f"got {self.partition!r}"
            )
        splits = {"training": self.train, "validation": self.validation, "test": self.test}
        for name, blocks in splits.items():
            if len(blocks) == 0:
                raise ValueError(f"the {name} split must fill at least one block of data.max_length units")
        share = self.masked_share
        if not (isinstance(share, float) and 0 < share < 1):
            raise ValueError(f"data.masked_share must be in (0, 1), got {shown(share)}")
        held_out = {
            name: HeldOutBlocks(self.mask(getattr(self, name), torch.Generator().manual_seed(0)))
            for name in ("validation", "test")
        }
        object.__setattr__(self, "held_out", held_out)

    @property
    def num_masked(self) -> int:
        """M, the number of units to predict per block."""
        return max(1, round(self.masked_share * (self.train.shape[1] - 2)))

    def model_arguments(self) -> MaskedArguments:
        """Keyword arguments that a model factory takes from the data."""
        return {"vocabulary_size": len(self.vocabulary), "masked": True, "max_length": self.train.shape[1]}

    def facts(self) -> dict[str, Any]:
        """Facts about the data, for summary.json."""
        names = ("train", "validation", "test")
        blocks = {f"{name}_blocks": len(getattr(self, name)) for name in names}
        return (
            self.extra_facts
            | {"vocabulary_size": len(self.vocabulary), "masked_per_block": self.num_masked}
            | blocks
        )

    def to(self, device: torch.device) -> Self:
        """A copy of the text on ``device``, with the same masks."""
        moved = {name: getattr(self, name).to(device) for name in ("train", "validation", "test")}
        return replace(self, **moved)

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> ShardLoader:
        """Batches of the workers in ``local_workers``; raises like ``shard_loader``."""

        def read(indices: Tensor, step: int, worker: int) -> MaskedBatch:
            blocks = self.train.index_select(0, indices.to(self.train.device, non_blocking=True))
            return self.mask(blocks, generator_of("mask", step, worker))

        sharing = Sharing(partition=self.partition)
        blocks = torch.zeros(len(self.train), dtype=torch.int64)
        length = self.train.shape[1]
        return shard_loader(
            read, blocks, workers, local_workers, batch_size, generator_of, sharing, tokens_per_sample=length
        )

    def held_out_batch(self, split: str, indices: Tensor) -> MaskedBatch:
        """Blocks of the split ``split`` at ``indices`` [B]."""
        return self.held_out[split].batch(indices)

    def mask(self, blocks: Tensor, generator: torch.Generator) -> MaskedBatch:
        """A batch of ``blocks`` [B, T] with M units to predict in each, drawn from ``generator``.

        ``[CLS]`` and ``[SEP]`` are never masked.
        """
        device, (size, length) = blocks.device, blocks.shape
        order = torch.rand(size, length - 2, generator=generator).argsort(1)
        positions = 1 + order[:, : self.num_masked].sort(1).values
        choice = torch.rand(positions.shape, generator=generator).to(device, non_blocking=True)
        random_units = torch.randint(len(self.vocabulary), positions.shape, generator=generator)
        random_units, positions = (own.to(device, non_blocking=True) for own in (random_units, positions))
        tokens = blocks.long()
        targets = tokens.gather(1, positions)
        inputs = torch.where(choice < _REPLACED + _RANDOM, random_units, targets)
        inputs = inputs.masked_fill(choice < _REPLACED, self.vocabulary.units[MASK])
        return MaskedBatch(tokens.scatter(1, positions, inputs), positions, targets)


@dataclass(frozen=True)
class HeldOutBlocks:
    """Held-out blocks with fixed masks."""

    blocks: MaskedBatch

    def __len__(self) -> int:
        return len(self.blocks.tokens)

    def batch(self, indices: Tensor) -> MaskedBatch:
        indices = indices.to(self.blocks.tokens.device, non_blocking=True)
        return MaskedBatch(*(part.index_select(0, indices) for part in self.blocks))


def masked_dataset(
    corpus: Corpus,
    *,
    vocabulary: str | None = None,
    vocabulary_size: int | None = None,
    lowercase: bool = True,
    max_length: int = 128,
    masked_share: float = 0.15,
    partition: str = "iid",
    extra_facts: dict[str, Any] | None = None,
) -> MaskedDataset:
    """``corpus`` in WordPiece units and blocks of ``max_length``; an incomplete last block is not used.

    ``vocabulary`` is a WordPiece file, such as those of the pretrained models. Without it ``WordPiece.of``
    makes a vocabulary of ``vocabulary_size`` (default 8,000) units from the training split. The word
    ``<unk>`` is one unit. Raises ``ValueError`` for invalid settings, and ``FileNotFoundError`` for a
    missing file.
    """
    require_count("data.max_length", max_length, minimum=3)
    if vocabulary is not None and vocabulary_size is not None:
        raise ValueError(f"data.vocabulary_size has no effect together with data.vocabulary={vocabulary}")
    if vocabulary is not None:
        units = WordPiece.read(path_of("data.vocabulary", vocabulary), lowercase)
    else:
        size = 8000 if vocabulary_size is None else vocabulary_size
        require_count("data.vocabulary_size", size)
        units = WordPiece.of([line.replace("<unk>", " ") for line in corpus.train], size, lowercase)
    blocks = {
        name: _blocks(units, getattr(corpus, name), max_length) for name in ("train", "validation", "test")
    }
    return MaskedDataset(
        **blocks,
        vocabulary=units,
        masked_share=masked_share,
        partition=partition,
        extra_facts={"name": corpus.name, "objective": "masked"} | (extra_facts or {}),
    )


def _blocks(units: WordPiece, lines: list[str], max_length: int) -> Tensor:
    """Blocks [N, T] int32 of the lines, joined."""
    known = [line.replace("<unk>", UNKNOWN) for line in lines]
    running = [number for row in units.encode(known) for number in row]
    inside = max_length - 2
    count = len(running) // inside
    text = torch.tensor(running[: count * inside], dtype=torch.int32).view(count, inside)
    start, end = (torch.full((count, 1), units.units[unit], dtype=torch.int32) for unit in (START, END))
    return torch.cat([start, text, end], 1)
