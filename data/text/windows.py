"""Language modelling on windows of a text: prediction of each token from those before it in its window."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.checks import require_count, require_flag
from data.partition import Sharing
from data.sampler import ShardLoader, shard_loader
from data.text.corpora import Corpus
from data.text.next_token import WordArguments
from data.text.streams import IGNORED
from data.text.tokens import Coding, coding
from data.text.vocabulary import Tokenize


class WindowBatch(NamedTuple):
    """One worker's batch of windows, and the next token for each of their tokens."""

    inputs: Tensor  # [B, T] int64
    targets: Tensor  # [B, T] int64, IGNORED after the end of the text
    num_bytes: Tensor  # [B] int64, bytes of the text for which the targets stand


@dataclass(frozen=True)
class NextInWindow:
    """Mean cross entropy per token; perplexity, its exponential; bits per byte of the text.

    Words have no bits per byte: ``<unk>`` and white space do not give the text back, so a smaller vocabulary
    would seem better. A model is called with tokens [B, T] and None, and returns logits [B, T, V] and a state
    that is not used.
    """

    gives_text_back: bool = True  # whether the tokens determine the text

    num_sums = 3
    higher_is_better: ClassVar[frozenset[str]] = frozenset()

    def loss(self, model: nn.Module, batch: WindowBatch, memory: None) -> tuple[Tensor, None]:
        """Mean loss over the windows' tokens; no state is carried."""
        logits, _ = model(batch.inputs, None)
        return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), None

    def measure(self, model: nn.Module, batch: WindowBatch) -> Tensor:
        """[3] float64: sum of losses, number of tokens, number of bytes."""
        logits, _ = model(batch.inputs, None)
        losses = F.cross_entropy(
            logits.flatten(0, 1).float(), batch.targets.flatten(), ignore_index=IGNORED, reduction="none"
        )
        sums = (losses.double().sum(), (batch.targets != IGNORED).sum(), batch.num_bytes.sum())
        return torch.stack([part.double() for part in sums])

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""
        loss = sums[0] / sums[1]
        found = {"loss": loss.item(), "perplexity": loss.exp().item()}
        if self.gives_text_back:
            found["bits_per_byte"] = (sums[0] / math.log(2) / sums[2]).item()
        return found


@dataclass(frozen=True)
class Windows:
    """Consecutive windows of T tokens."""

    inputs: Tensor  # [M, T] int32
    targets: Tensor  # [M, T] int32
    num_bytes: Tensor  # [M] int64

    @classmethod
    def cut(cls, lines: list[str], tokens: Coding, length: int) -> Self:
        """The windows of the text; every token is a target once, and the last window is padded.

        The first token of the text is predicted from a line feed.
        """
        ids, num_bytes = tokens.encode(lines)
        count = -(-len(ids) // length)
        pad = count * length - len(ids)
        before = torch.cat([torch.tensor([tokens.line_feed], dtype=torch.int32), ids[:-1]])
        return cls(
            F.pad(before, (0, pad)).view(count, length),
            F.pad(ids, (0, pad), value=IGNORED).view(count, length),
            F.pad(num_bytes, (0, pad)).view(count, length).sum(1),
        )

    def __len__(self) -> int:
        return len(self.inputs)

    def full(self) -> Self:
        """The windows without a padded last one."""
        count = len(self) - int(self.targets[-1, -1] == IGNORED)
        return type(self)(self.inputs[:count], self.targets[:count], self.num_bytes[:count])

    def to(self, device: torch.device) -> Self:
        return type(self)(*(part.to(device) for part in (self.inputs, self.targets, self.num_bytes)))

    def batch(self, indices: Tensor) -> WindowBatch:
        """The windows at ``indices`` [B]."""
        indices = indices.to(self.inputs.device, non_blocking=True)
        inputs, targets = (part.index_select(0, indices).long() for part in (self.inputs, self.targets))
        return WindowBatch(inputs, targets, self.num_bytes.index_select(0, indices))


@dataclass(frozen=True, kw_only=True)
class WindowDataset:
    """Windows of a text, which training reads in random order.

    Training does not read the incomplete last window. Raises ``ValueError`` for a training split without a
    full window and for a partition that needs labels.
    """

    train: Windows
    held_out: dict[str, Windows]
    num_tokens: int  # V
    task: NextInWindow
    partition: str
    extra_facts: dict[str, Any]  # facts besides the sizes, for summary.json

    objective = "windows"

    def __post_init__(self) -> None:
        if self.partition not in ("iid", "contiguous"):
            raise ValueError(
                "data.partition must be iid or contiguous for windows of text, which have no labels, "
                f"got {self.partition!r}"
            )
        if len(self.train) == 0:
            raise ValueError("the training split must fill at least one window of data.length tokens")

    def model_arguments(self) -> WordArguments:
        """Keyword arguments that a model factory takes from the data."""
        return {"num_words": self.num_tokens}

    def facts(self) -> dict[str, Any]:
        """Facts about the data, for summary.json."""
        parts = {"train": self.train, **self.held_out}
        counts = {f"{name}_windows": len(part) for name, part in parts.items()}
        counts |= {f"{name}_bytes": int(part.num_bytes.sum()) for name, part in parts.items()}
        return self.extra_facts | {"num_tokens": self.num_tokens} | counts

    def to(self, device: torch.device) -> Self:
        """A copy of the text on ``device``."""
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

        def read(indices: Tensor, step: int, worker: int) -> WindowBatch:
            return self.train.batch(indices)

        sharing = Sharing(partition=self.partition)
        windows = torch.zeros(len(self.train), dtype=torch.int64)
        length = self.train.inputs.shape[1]
        return shard_loader(
            read, windows, workers, local_workers, batch_size, generator_of, sharing, tokens_per_sample=length
        )

    def held_out_batch(self, split: str, indices: Tensor) -> WindowBatch:
        """Windows of the split ``split`` at ``indices`` [B]."""
        return self.held_out[split].batch(indices)


def window_dataset(
    corpus: Corpus,
    *,
    tokenize: Tokenize,
    extra_facts: dict[str, Any],
    tokens: str = "byte",
    length: int = 128,
    lowercase: bool = False,
    vocabulary_size: int | None = None,
    partition: str = "iid",
) -> WindowDataset:
    """``corpus`` in windows of ``length`` tokens, of the kind ``tokens`` (``data.text.tokens.coding``).

    ``tokenize`` cuts lines into words. Raises ``ValueError`` for invalid settings.
    """
    require_count("data.length", length)
    require_flag("data.lowercase", lowercase)
    splits = {name: getattr(corpus, name) for name in ("train", "validation", "test")}
    if lowercase:
        splits = {name: [line.lower() for line in lines] for name, lines in splits.items()}
    cut = coding(tokens, splits["train"], vocabulary_size, tokenize)
    windows = {name: Windows.cut(lines, cut, length) for name, lines in splits.items()}
    return WindowDataset(
        train=windows.pop("train").full(),
        held_out=windows,
        num_tokens=cut.num_tokens,
        task=NextInWindow(gives_text_back=tokens != "word" and not lowercase),
        partition=partition,
        extra_facts={"name": corpus.name, "tokens": tokens, "length": length} | extra_facts,
    )
