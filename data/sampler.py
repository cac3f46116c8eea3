"""Order of the samples of a worker's shard."""

from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import Tensor

from data.partition import split


class ShardSampler:
    """Full batches from an endless sequence of passes over one worker's shard.

    The order of each pass is drawn from the generator that ``generator_of(pass)`` gives. The batch of a
    step follows from the step alone: there is no position to save. ``deal(pass)`` is the shard of a
    pass where it is not always ``shard``, and as long. A pass has ``steps_per_pass`` batches and
    leaves out the rest of the shard; None reads all of it, and the batch in which a pass ends goes on
    with the next one. Raises ``ValueError`` for a batch larger than the shard.
    """

    def __init__(
        self,
        shard: Tensor,
        batch_size: int,
        generator_of: Callable[[int], torch.Generator],
        owner: str = "a worker",
        *,
        deal: Callable[[int], Tensor] | None = None,
        steps_per_pass: int | None = None,
    ) -> None:
        if batch_size > len(shard):
            raise ValueError(
                f"trainer.batch_size must be at most the {len(shard)} samples of {owner}, got {batch_size}"
            )
        self.shard = shard
        self.batch_size = batch_size
        self.generator_of = generator_of
        self.deal = deal
        self.steps_per_pass = steps_per_pass
        self._pass = -1
        self._order = shard

    def batch(self, step: int) -> Tensor:
        """Indices [batch_size] of the samples to read in ``step``, counted from 0."""
        if self.steps_per_pass is not None:
            number, within = divmod(step, self.steps_per_pass)
            return self._read(number)[within * self.batch_size : (within + 1) * self.batch_size]
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
            shard = self.shard if self.deal is None else self.deal(number)
            order = torch.randperm(len(shard), generator=self.generator_of(number))
            self._pass, self._order = number, shard[order]
        return self._order


def shard_samplers(
    targets: Tensor,
    workers: int,
    batch_size: int | None,
    partition: str,
    alpha: float | None,
    generator_of: Callable[..., torch.Generator],
    *,
    reshard: str = "never",
    drop_last: bool = False,
) -> list[ShardSampler]:
    """One sampler for each of all workers; ``generator_of(*salt)`` gives generators.

    ``targets`` [N] int64 on the CPU. Without a ``batch_size`` a batch is the worker's whole shard.
    With ``reshard`` epoch the samples are dealt out anew for each pass; with ``drop_last`` a pass has
    as many batches as the smallest shard holds whole. Raises ``ValueError`` for more workers than
    samples, a batch larger than any worker's shard, and passes of another kind over whole shards.
    """
    if batch_size is None and (reshard == "epoch" or drop_last):
        setting = "data.reshard=epoch" if reshard == "epoch" else "data.drop_last"
        raise ValueError(f"{setting} cannot go with trainer.batch_size=null: each step is a whole pass")
    shards = split(targets, workers, partition, generator_of("partition"), alpha)
    steps_per_pass = min(map(len, shards)) // batch_size if drop_last and batch_size is not None else None

    @lru_cache(maxsize=2)  # where shards differ in size, one worker begins a pass before another
    def deal(number: int) -> list[Tensor]:
        return split(targets, workers, partition, generator_of("partition", number), alpha)

    def deal_to(worker: int, number: int) -> Tensor:
        return deal(number)[worker]

    return [
        ShardSampler(
            shard,
            batch_size or len(shard),
            partial(generator_of, "order", worker),
            f"worker {worker}",
            deal=partial(deal_to, worker) if reshard == "epoch" else None,
            steps_per_pass=steps_per_pass,
        )
        for worker, shard in enumerate(shards)
    ]


def epochs_per_step(samplers: list[ShardSampler], workers: int, batch_size: int | None, count: int) -> float:
    """The share of an epoch that a step of all ``workers`` is; ``count`` training samples."""
    if batch_size is None:
        return 1.0
    steps = samplers[0].steps_per_pass
    return workers * batch_size / count if steps is None else 1 / steps
