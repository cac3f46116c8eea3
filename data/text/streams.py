"""Text divided into columns that are read in parallel, one window of tokens at a time."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

IGNORED = -100  # marks a missing target; torch's default ``ignore_index``


class TokenBatch(NamedTuple):
    """Windows of text, and the next token for each of their tokens."""

    inputs: Tensor  # [B, T] int64
    targets: Tensor  # [B, T] int64
    restart: bool  # True if the windows do not continue the last batch


@dataclass(frozen=True)
class StreamLoader:
    """Windows of the local workers' streams, determined by the step alone.

    The training tokens are cut into n streams of equal length, one per worker, and each stream into B
    columns of C tokens. Up to n B - 1 tokens that do not fill a column are left out. A step reads the
    next ``bptt`` tokens of each column; the last step of a pass reads the remaining ones. The next pass
    begins at the first token.
    """

    inputs: list[Tensor]  # [B, C] of each local worker
    targets: list[Tensor]  # the same, shifted by one token
    bptt: int
    left_out: int

    @classmethod
    def cut(
        cls, tokens: Tensor, workers: int, local_workers: range, batch_size: int | None, bptt: int
    ) -> "StreamLoader":
        """The streams of the workers in ``local_workers``.

        Raises ``ValueError`` for more workers than tokens to predict, and for a batch size that is None or
        larger than a worker's stream.
        """
        available = len(tokens) - 1  # the first token is no target
        if workers > available:
            raise ValueError(
                f"workers must be at most the {available} tokens to predict in the training split, "
                f"got {workers}"
            )
        if batch_size is None:
            raise ValueError("trainer.batch_size must be an integer >= 1 for streams of text, got None")
        if batch_size > available // workers:
            raise ValueError(
                f"trainer.batch_size must be at most the {available // workers} tokens of a worker's stream, "
                f"got {batch_size}"
            )
        length = available // (workers * batch_size)
        read = length * workers * batch_size
        shape = (workers, batch_size, length)
        inputs, targets = tokens[:read].view(shape), tokens[1 : read + 1].view(shape)
        return cls(
            [inputs[w] for w in local_workers], [targets[w] for w in local_workers], bptt, available - read
        )

    @property
    def windows(self) -> int:
        """Steps per pass over the streams, which is an epoch."""
        return -(-self.inputs[0].shape[1] // self.bptt)

    @property
    def epochs_per_step(self) -> float:
        return 1 / self.windows

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a worker reads in a step, mean over a pass."""
        return self.inputs[0].numel() / self.windows

    def batches(self, step: int) -> list[TokenBatch]:
        """Windows of the local workers in ``step``, counted from 0."""
        window = step % self.windows
        part = slice(window * self.bptt, (window + 1) * self.bptt)
        return [
            TokenBatch(inputs[:, part], targets[:, part], restart=window == 0)
            for inputs, targets in zip(self.inputs, self.targets, strict=True)
        ]

    def facts(self) -> dict[str, Any]:
        """Tokens per worker, and tokens that no worker reads."""
        return {
            "tokens_per_worker": self.inputs[0].numel(),
            "steps_per_epoch": self.windows,
            "tokens_left_out": self.left_out,
        }


@dataclass(frozen=True)
class HeldOutColumns:
    """Held-out text in columns whose lengths differ by at most one; each is read from a fresh state.

    Every token except the first of the text is a target exactly once. The first target of a column is
    predicted from the last token of the previous column.
    """

    inputs: Tensor  # [E, C] int64
    targets: Tensor  # [E, C] int64, IGNORED after the end of a shorter column

    @classmethod
    def cut(cls, tokens: Tensor, columns: int) -> "HeldOutColumns":
        """``columns`` columns of ``tokens`` [N], N > columns."""
        inputs = list(tokens[:-1].tensor_split(columns))
        targets = list(tokens[1:].tensor_split(columns))
        pad = torch.nn.utils.rnn.pad_sequence
        return cls(pad(inputs, batch_first=True), pad(targets, batch_first=True, padding_value=IGNORED))

    def __len__(self) -> int:
        return len(self.inputs)
