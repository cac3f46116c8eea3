"""The order in which a worker reads its shard."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from data.partition import split


class ShardSampler:
    """Full batches from an endless sequence of passes over one worker's shard.

    The order of each pass is drawn from the generator that ``stream(pass)`` gives. The batch of a
    step follows from the step alone: there is no position to save. Raises ``ValueError`` for a
    batch larger than the shard.
    """

    def __init__(
        self,
        shard: Tensor,
        batch_size: int,
        stream: Callable[[int], torch.Generator],
        owner: str = "a worker",
    ) -> None:
        if batch_size > len(shard):
            raise ValueError(
                f"trainer.batch_size must be at most the {len(shard)} samples of {owner}, got {batch_size}"
            )
        self.shard = shard
        self.batch_size = batch_size
        self.stream = stream
        self._pass = -1
        self._order = shard

    def batch(self, step: int) -> Tensor:
        """Indices [batch_size] of the samples to read in ``step``, counted from 0."""
        start = step * self.batch_size
        stop = start + self.batch_size
        pieces = []
        while start < stop:
            number, offset = divmod(start, len(self.shard))
            piece = self._read(number)[offset : offset + stop - start]
            pieces.append(piece)
            start += len(piece)
        return torch.cat(pieces)

    def _read(self, number: int) -> Tensor:
        if number != self._pass:
            order = torch.randperm(len(self.shard), generator=self.stream(number))
            self._pass, self._order = number, self.shard[order]
        return self._order


def shard_samplers(
    targets: Tensor,
    workers: int,
    batch_size: int | None,
    partition: str,
    alpha: float | None,
    stream: Callable[..., torch.Generator],
) -> list[ShardSampler]:
    """One sampler for each of all workers; ``stream(*salt)`` gives generators.

    ``targets`` [N] int64 on the CPU. Without a ``batch_size`` a batch is the worker's whole shard.
    Raises ``ValueError`` for more workers than samples and a batch larger than any worker's shard.
    """
    shards = split(targets, workers, partition, stream("partition"), alpha)
    return [
        ShardSampler(shard, batch_size or len(shard), partial(stream, "order", worker), f"worker {worker}")
        for worker, shard in enumerate(shards)
    ]
