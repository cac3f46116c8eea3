"""Order of the samples of a worker's shard, and the loader that reads them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from data.partition import Sharing, split
from data.protocols import Batch


class ShardSampler:
    """Full batches from an endless sequence of passes over one worker's shard.

    ``shard`` [m] int64 has the indices of the worker's samples. ``generator_of(pass)`` draws the order of
    each pass. The batch of a step depends on the step alone, so there is no position to save. If the shard
    changes between passes, ``deal(pass)`` returns a pass's shard, of the same length as ``shard``. A pass
    has ``steps_per_pass`` batches and leaves out the rest of the shard. If ``steps_per_pass`` is None a
    pass reads the whole shard, and the last batch of a pass is filled from the next pass. Raises
    ``ValueError`` for a batch larger than the shard.
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
        """Indices [batch_size] of the samples of ``step``, counted from 0."""
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


@dataclass(frozen=True)
class ShardLoader:
    """Batches of the local workers: ``read(indices, step, worker)`` of their samplers' indices."""

    read: Callable[[Tensor, int, int], Batch]
    local_workers: range
    samplers: list[ShardSampler]  # of the local workers
    epochs_per_step: float  # epochs per step of all n workers
    tokens_per_step: float | None = None  # of one worker, if a sample has tokens
    sizes: tuple[int, int] = (0, 0)  # of the smallest and of the largest shard

    def facts(self) -> dict[str, Any]:
        """Samples per worker, if they differ by more than one. The workers' means count equally."""
        fewest, most = self.sizes
        return {"samples_per_worker": f"{fewest} to {most}"} if most > fewest + 1 else {}

    def batches(self, step: int) -> list[Batch]:
        """W batches, determined by ``step`` alone."""
        return [
            self.read(sampler.batch(step), step, worker)
            for worker, sampler in zip(self.local_workers, self.samplers, strict=True)
        ]


def shard_loader(
    read: Callable[[Tensor, int, int], Batch],
    targets: Tensor,
    workers: int,
    local_workers: range,
    batch_size: int | None,
    generator_of: Callable[..., torch.Generator],
    sharing: Sharing,
    tokens_per_sample: int | None = None,
) -> ShardLoader:
    """The loader of the workers in ``local_workers``; ``generator_of(*salt)`` returns a random generator.

    ``targets`` is [N] int64 on the CPU. Without a ``batch_size`` a batch is the worker's whole shard.
    Raises ``ValueError`` for more workers than samples, for a batch larger than any worker's shard, also
    one of another process, and for ``reshard`` or ``drop_last`` without a ``batch_size``.
    """
    redeals = sharing.reshard == "epoch"
    if batch_size is None and (redeals or sharing.drop_last):
        setting = "data.reshard=epoch" if redeals else "data.drop_last"
        raise ValueError(
            f"{setting} cannot be combined with trainer.batch_size=null: each step is a whole pass"
        )
    shards = split(targets, workers, sharing.partition, generator_of("partition"), sharing.alpha)
    steps_per_pass = None
    if sharing.drop_last and batch_size is not None:
        steps_per_pass = min(map(len, shards)) // batch_size

    @lru_cache(maxsize=2)  # workers with shards of different sizes can be in two different passes
    def deal(number: int) -> list[Tensor]:
        return split(targets, workers, sharing.partition, generator_of("partition", number), sharing.alpha)

    def deal_to(worker: int, number: int) -> Tensor:
        return deal(number)[worker]

    samplers = [
        ShardSampler(
            shard,
            batch_size or len(shard),
            partial(generator_of, "order", worker),
            f"worker {worker}",
            deal=partial(deal_to, worker) if redeals else None,
            steps_per_pass=steps_per_pass,
        )
        for worker, shard in enumerate(shards)
    ]
    epochs_per_step = 1.0
    if batch_size is not None:
        epochs_per_step = 1 / steps_per_pass if steps_per_pass else workers * batch_size / len(targets)
    own = [samplers[worker] for worker in local_workers]
    tokens = None
    if tokens_per_sample is not None:
        tokens = tokens_per_sample * (batch_size or len(targets) / workers)
    sizes = min(map(len, shards)), max(map(len, shards))
    return ShardLoader(read, local_workers, own, epochs_per_step, tokens, sizes)
