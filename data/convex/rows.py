"""Rows with labels or targets, and their loader, for models with analytic gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypedDict

import numpy as np
import torch
from torch import Tensor

from data.checks import require_memory
from data.partition import check_partition, split
from data.sampler import ShardSampler

DENSE = 0.2  # fraction of non-zero entries above which dense products are faster
_DRAWS_AT_ONCE = 2**12  # random row numbers drawn at once per worker; one generator per step would be slow


class Rows(NamedTuple):
    """Rows of the W local workers in one step, worker after worker; R rows in total."""

    features: Any  # [R, D] float64, each row times minus its label: a scipy CSR matrix, or a tensor on a GPU
    indices: np.ndarray | None  # [R] int64, the rows that are read if features are a dense array [m, D]
    weights: Tensor  # [R], weight of a row's loss in the worker's loss
    lengths: np.ndarray  # [W] int64, number of rows of each worker
    targets: Tensor | None = None  # [R] float64, of a regression; None for labels, which are in ``features``


class RowsArguments(TypedDict):
    """Keyword arguments of a model factory for rows."""

    problem: Rows  # all rows of the dataset
    name: str
    cache: Path  # folder of cached results for these rows, such as the optimum


@dataclass(frozen=True, kw_only=True)
class RowsDataset:
    """m rows, split over n workers, read whole or in batches.

    A worker's loss is weighted so that the mean over workers is the loss of all rows: each row has
    weight n / m in its worker's loss, also if workers hold different numbers of rows. With
    ``replacement`` the rows of a batch are drawn independently from the worker's shard; without it
    the worker reads its shard pass after pass. ``label_values`` are the file's labels for -1 and +1;
    ``cache`` is a folder of cached results for these rows, such as the optimum. In a regression all labels
    are -1, so that features keep their signs, and ``targets`` has a number for each row.
    """

    name: str
    features: Any  # scipy CSR matrix [m, D] float64
    labels: Tensor  # [m] float64, -1 or +1
    label_values: tuple[float, float]
    replacement: bool
    partition: str
    alpha: float | None
    cache: Path
    targets: Tensor | None = None  # [m] float64
    device: torch.device = field(default=torch.device("cpu"))

    task = None  # the model computes the loss of its rows itself

    @property
    def held_out(self) -> dict[str, Any]:
        """No split: the problem is evaluated on all rows."""
        return {}

    def held_out_batch(self, split: str, indices: Tensor) -> Rows:
        """Raises ``KeyError``: no split is held out."""
        raise KeyError(split)

    def __post_init__(self) -> None:
        check_partition(self.partition, self.alpha)

    @property
    def train(self) -> Tensor:
        """One entry per training row."""
        return self.labels

    def to(self, device: torch.device) -> Self:
        """A copy of the dataset whose rows are used on ``device``."""
        return replace(self, device=device)

    def model_arguments(self) -> RowsArguments:
        """Keyword arguments that a model factory takes from the data."""
        return {"problem": self.whole, "name": self.name, "cache": self.cache}

    def facts(self) -> dict[str, Any]:
        """Facts about the data, for summary.json."""
        low, high = self.label_values
        labels = {"labels": {f"{low:g}": -1, f"{high:g}": 1}} if self.targets is None else {}
        return {
            "name": self.name,
            "rows": self.features.shape[0],
            "features": self.features.shape[1],
            "share_not_zero": self._share_not_zero,
            **labels,
        }

    @property
    def _share_not_zero(self) -> float:
        return self.features.nnz / (self.features.shape[0] * self.features.shape[1])

    @cached_property
    def whole(self) -> Rows:
        """All rows, as the batch of a single worker that has all of them."""
        count = len(self.labels)
        weights = torch.full((count,), 1 / count, dtype=torch.float64, device=self.device)
        indices = np.arange(count) if self._is_read_in_place else None
        return Rows(self._stored, indices, weights, np.array([count]), self._targets_of(np.arange(count)))

    @cached_property
    def _stored(self) -> Any:
        """The rows -y_j a_j in the fastest format: CSR or an array on the CPU, a tensor on a GPU."""
        signs = -self.labels.numpy()[:, None]
        if self.device.type == "cpu" and self._share_not_zero < DENSE:
            return self.features.multiply(signs).tocsr()
        require_memory("data.name", self.name, 8 * math.prod(self.features.shape))
        dense = self.features.toarray() * signs
        if self.device.type == "cpu":
            return dense
        return torch.from_numpy(dense).to(self.device, non_blocking=True)

    @cached_property
    def _is_read_in_place(self) -> bool:
        return isinstance(self._stored, np.ndarray)

    def rows(self, indices: np.ndarray, weights: Tensor, lengths: np.ndarray, dense: bool = False) -> Rows:
        """The rows at ``indices`` [R]; ``dense`` converts rows that are stored as CSR."""
        targets = self._targets_of(indices)
        if self._is_read_in_place:
            return Rows(self._stored, indices, weights, lengths, targets)
        if isinstance(self._stored, Tensor):
            own = torch.from_numpy(indices).to(self.device, non_blocking=True)
            return Rows(self._stored.index_select(0, own), None, weights, lengths, targets)
        features = self._stored[indices]
        if not dense:
            return Rows(features, None, weights, lengths, targets)
        return Rows(features.toarray(), np.arange(len(indices)), weights, lengths, targets)

    def _targets_of(self, indices: np.ndarray) -> Tensor | None:
        if self.targets is None:
            return None
        return self.targets[torch.from_numpy(indices)].to(self.device, non_blocking=True)

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> "RowsLoader":
        """Batches of the workers in ``local_workers``: ``batch_size`` rows each, or the whole shard if None.

        Raises ``ValueError`` for more workers than rows and, without replacement, for a batch larger than any
        worker's shard, also a shard of another process; also if a step's rows do not fit into the memory.
        """
        shards = split(self.labels.long(), workers, self.partition, generator_of("partition"), self.alpha)
        if batch_size is not None:
            num_bytes = 8 * len(local_workers) * batch_size * self.features.shape[1]  # dense rows of a step
            require_memory("trainer.batch_size", batch_size, num_bytes)
        if batch_size is not None and not self.replacement:
            samplers = [
                ShardSampler(shard, batch_size, partial(generator_of, "order", worker), f"worker {worker}")
                for worker, shard in enumerate(shards)
            ]
        else:
            samplers = []
        return RowsLoader(self, shards, local_workers, batch_size, generator_of, samplers)


class RowsLoader:
    """Batches of the local workers, determined by the step alone."""

    def __init__(
        self,
        dataset: RowsDataset,
        shards: list[Tensor],
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
        samplers: list[ShardSampler],
    ) -> None:
        self.dataset = dataset
        self.lengths = [len(shard) for shard in shards]  # of all n workers
        self.shards = [shards[worker] for worker in local_workers]
        self.samplers = [samplers[worker] for worker in local_workers] if samplers else []
        self.local_workers = local_workers
        self.batch_size = batch_size
        self.generator_of = generator_of
        self.epochs_per_step = (
            1.0 if batch_size is None else len(self.lengths) * batch_size / len(dataset.labels)
        )  # fraction of the rows that all workers read in a step
        self._steps_at_once = max(1, _DRAWS_AT_ONCE // (batch_size or 1))
        self._block = -1
        self._drawn = np.empty((0, 0), dtype=np.int64)
        if batch_size is not None:
            # each row of a shard has weight n / m, and a batch is a sample of the shard
            shares = [n_i * len(self.lengths) / len(dataset.labels) / batch_size for n_i in self.lengths]
            own = torch.tensor([shares[worker] for worker in local_workers], dtype=torch.float64)
            self._weights = own.repeat_interleave(batch_size).to(dataset.device)
            self._lengths = np.full(len(local_workers), batch_size)

    def whole(self) -> Rows:
        """All rows of the local workers."""
        return self._whole

    @cached_property
    def _whole(self) -> Rows:
        indices = torch.cat(self.shards).numpy()
        weight = len(self.lengths) / len(self.dataset.labels)
        weights = torch.full((len(indices),), weight, dtype=torch.float64, device=self.dataset.device)
        rows = self.dataset.rows(indices, weights, np.array([len(shard) for shard in self.shards]))
        if rows.indices is None:
            return rows
        in_order = rows.features[indices]  # contiguous rows: reading is a sixth faster
        return rows._replace(features=in_order, indices=np.arange(len(indices)))

    def batches(self, step: int) -> Rows:
        """Rows of the local workers in ``step``, counted from 0."""
        if self.batch_size is None:
            return self._whole
        return self.dataset.rows(self._indices(step), self._weights, self._lengths, dense=True)

    def facts(self) -> dict[str, Any]:
        """Rows per worker. Every row has weight n / m, also if workers hold different numbers of rows."""
        fewest, most = min(self.lengths), max(self.lengths)
        if fewest == most:
            return {"rows_per_worker": most}
        return {
            "rows_per_worker": f"{fewest} to {most}, each counting {len(self.lengths)}/{sum(self.lengths)}"
        }

    def _indices(self, step: int) -> np.ndarray:
        """Row numbers [W batch_size]."""
        if self.samplers:
            return torch.cat([sampler.batch(step) for sampler in self.samplers]).numpy()
        block, offset = divmod(step, self._steps_at_once)
        if block != self._block:
            self._block, self._drawn = block, self._draw(block)
        return self._drawn[offset]

    def _draw(self, block: int) -> np.ndarray:
        """Rows drawn with replacement, [steps, W batch_size]."""
        assert self.batch_size is not None  # a whole shard needs no draw
        shape, drawn = (self._steps_at_once, self.batch_size), []
        for worker, shard in zip(self.local_workers, self.shards, strict=True):
            drawn.append(
                shard[torch.randint(len(shard), shape, generator=self.generator_of("order", worker, block))]
            )
        return torch.cat(drawn, 1).numpy()
