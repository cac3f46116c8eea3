"""Language modelling: prediction of each token from the tokens before it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.checks import require_count, require_flag
from data.text.corpora import Corpus
from data.text.streams import IGNORED, HeldOutColumns, StreamLoader, TokenBatch
from data.text.vocabulary import UNKNOWN, Tokenize, Vocabulary


class WordArguments(TypedDict):
    """Keyword arguments of a model factory for a text."""

    num_words: int  # V, size of the vocabulary


Hidden = tuple[Tensor, ...]  # state of an LSTM, two tensors [layers, B, width]; empty without state


@dataclass(frozen=True, kw_only=True)
class NextToken:
    """Mean cross entropy per token, and perplexity, its exponential; infinite if that overflows.

    A model is called with tokens [B, T] and the hidden state, None for zeros. It returns logits
    [B, T, V] and the new state, an empty tuple if it has none. Training and evaluation carry the state,
    detached from the graph, to the next window (truncated backpropagation through time).
    """

    bptt: int  # tokens per window

    num_sums = 2
    higher_is_better: ClassVar[frozenset[str]] = frozenset()

    def loss(
        self, model: nn.Module, batch: TokenBatch, memory: Hidden | None
    ) -> tuple[Tensor, Hidden | None]:
        """Mean loss over the window, and the state at its end."""
        logits, hidden = model(batch.inputs, None if batch.restart else memory)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        return loss, tuple(part.detach() for part in hidden)

    def measure(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """[2] float64: sum of losses and number of tokens; columns are read in windows."""
        sums = torch.zeros(2, dtype=torch.float64, device=batch.inputs.device)
        hidden = None
        windows = zip(batch.inputs.split(self.bptt, 1), batch.targets.split(self.bptt, 1), strict=True)
        for inputs, targets in windows:
            logits, hidden = model(inputs, hidden)
            losses = F.cross_entropy(
                logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="none"
            )
            sums += torch.stack([losses.double().sum(), (targets != IGNORED).sum().double()])
        return sums

    def summarise(self, sums: Tensor) -> dict[str, float]:
        """Metrics from the sum of ``measure`` over batches."""
        loss = sums[0] / sums[1]
        return {"loss": loss.item(), "perplexity": loss.exp().item()}


@dataclass(frozen=True, kw_only=True)
class NextTokenDataset:
    """A text in three splits of token ids, each [N] int64, below ``num_words``.

    Training reads one stream per worker (``streams.StreamLoader``). Evaluation reads
    ``evaluation_columns`` columns of each held-out split. Raises ``ValueError`` for a split with fewer
    than 2 tokens, for more columns than tokens to predict, and for invalid counts.
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    num_words: int
    bptt: int
    evaluation_columns: int
    extra_facts: dict[str, Any]  # facts besides the sizes, for summary.json
    held_out: dict[str, HeldOutColumns] = field(init=False)

    objective = "next_token"

    def __post_init__(self) -> None:
        require_count("data.bptt", self.bptt)
        require_count("data.evaluation_columns", self.evaluation_columns)
        for name, tokens in (("training", self.train), *self._measured.items()):
            if len(tokens) < 2:
                raise ValueError(f"the {name} split must have at least 2 tokens, got {len(tokens)}")
        for name, tokens in self._measured.items():
            if self.evaluation_columns >= len(tokens):
                raise ValueError(
                    f"data.evaluation_columns must be at most the {len(tokens) - 1} tokens to predict in the "
                    f"{name} split, got {self.evaluation_columns}"
                )
        columns = {
            name: HeldOutColumns.cut(tokens, self.evaluation_columns)
            for name, tokens in self._measured.items()
        }
        object.__setattr__(self, "held_out", columns)

    @property
    def _measured(self) -> dict[str, Tensor]:
        return {"validation": self.validation, "test": self.test}

    @property
    def task(self) -> NextToken:
        return NextToken(bptt=self.bptt)

    def model_arguments(self) -> WordArguments:
        """Keyword arguments that a model factory takes from the data."""
        return {"num_words": self.num_words}

    def facts(self) -> dict[str, Any]:
        """Facts about the data, for summary.json."""
        counts = {f"{name}_tokens": len(tokens) for name, tokens in self._measured.items()}
        vocabulary = {"num_words": self.num_words}
        return self.extra_facts | vocabulary | {"train_tokens": len(self.train)} | counts

    def to(self, device: torch.device) -> Self:
        """A copy of the text on ``device``."""
        moved = {name: getattr(self, name).to(device) for name in ("train", "validation", "test")}
        return replace(self, **moved)

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> StreamLoader:
        """Batches of ``local_workers``, in the order of the text; raises like ``StreamLoader.cut``."""
        return StreamLoader.cut(self.train, workers, local_workers, batch_size, self.bptt)

    def held_out_batch(self, split: str, indices: Tensor) -> TokenBatch:
        """Whole columns [B, C] of the split ``split`` at ``indices`` [B]."""
        columns = self.held_out[split]
        indices = indices.to(columns.inputs.device, non_blocking=True)
        return TokenBatch(columns.inputs[indices], columns.targets[indices], restart=True)


def next_token_dataset(
    corpus: Corpus,
    *,
    tokenize: Tokenize,
    extra_facts: dict[str, Any],
    lowercase: bool = False,
    vocabulary_size: int | None = None,
    bptt: int = 30,
    evaluation_columns: int = 10,
    evaluation_tokens: int | None = None,
) -> NextTokenDataset:
    """``corpus`` as token ids of a vocabulary of its training split.

    The vocabulary has the ``vocabulary_size`` most frequent words, or all words if None. Every other
    word is ``<unk>``; each line ends with ``<eos>``. ``evaluation_tokens`` shortens both held-out splits
    to their first tokens, for quick evaluations. Raises ``ValueError`` for invalid settings.
    """
    require_flag("data.lowercase", lowercase)
    if vocabulary_size is not None:
        require_count("data.vocabulary_size", vocabulary_size, minimum=3)

    if evaluation_tokens is not None:
        require_count("data.evaluation_tokens", evaluation_tokens, minimum=2)

    def words_of(line: str) -> list[str]:
        return tokenize(line.lower() if lowercase else line)

    vocabulary = Vocabulary.of(corpus.train, words_of, vocabulary_size)
    splits = {name: vocabulary.encode(getattr(corpus, name)) for name in ("train", "validation", "test")}
    for name in ("validation", "test"):
        splits[name] = splits[name][:evaluation_tokens]
    unknown = vocabulary.words.index(UNKNOWN)
    shares = {
        f"{name}_unknown": round((tokens == unknown).double().mean().item(), 4)
        for name, tokens in splits.items()
    }
    return NextTokenDataset(
        **splits,
        num_words=len(vocabulary),
        bptt=bptt,
        evaluation_columns=evaluation_columns,
        extra_facts={"name": corpus.name} | extra_facts | shares,
    )
