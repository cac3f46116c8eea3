"""A communicator that records the bytes given to its collectives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from trainers.comm.communicator import Communicator


class RecordingCommunicator(Communicator):
    """A communicator of one process; ``recorded`` [W, kinds] are the bytes given to collectives."""

    def __init__(self, workers: int) -> None:
        self.recorded = np.zeros((workers, 0))
        super().__init__(workers)

    def declare_kinds(self, kinds: Sequence[str]) -> None:
        super().declare_kinds(kinds)
        missing = len(self.kinds) - self.recorded.shape[1]
        self.recorded = np.pad(self.recorded, ((0, 0), (0, missing)))

    def all_reduce_mean(
        self,
        rows: list[Tensor],
        add_up: Callable[[Tensor], Tensor] | None = None,
        kind: str = "values",
    ) -> list[Tensor]:
        for tensor in rows:
            self._record(kind, tensor)
        return super().all_reduce_mean(rows, add_up, kind)

    def all_gather(self, rows: Tensor, kind: str) -> Tensor:
        self._record(kind, rows)
        return super().all_gather(rows, kind)

    def all_gather_fields(self, fields: list[Tensor], kind: str) -> list[Tensor]:
        for tensor in fields:
            self._record(kind, tensor)
        return super().all_gather_fields(fields, kind)

    def all_gather_counts(self, counts: np.ndarray, largest: int, *, of_elements: bool = True) -> np.ndarray:
        self.recorded[:, self.kinds.index("metadata")] += 4 * len(counts)
        return super().all_gather_counts(counts, largest, of_elements=of_elements)

    def all_gather_ragged(
        self, fields: list[list[Tensor]], lengths: np.ndarray, kinds: list[str]
    ) -> list[list[Tensor]]:
        for tensors, kind in zip(fields, kinds, strict=True):
            for tensor, own in zip(tensors, lengths, strict=True):
                assert tensor.numel() == own.sum()
                self.recorded[:, self.kinds.index(kind)] += own * tensor.itemsize
        return super().all_gather_ragged(fields, lengths, kinds)

    def all_gather_messages(self, messages: list[list[tuple[str, Any]]], largest: int) -> list[np.ndarray]:
        for row, parts in enumerate(messages):
            self.recorded[row, self.kinds.index("metadata")] += 4
            for kind, part in parts:
                self.recorded[row, self.kinds.index(kind)] += part.nbytes
        return super().all_gather_messages(messages, largest)

    def broadcast_from(self, worker: int, tensor: Tensor, kind: str) -> Tensor:
        self.recorded[worker, self.kinds.index(kind)] += tensor.nbytes
        return super().broadcast_from(worker, tensor, kind)

    def all_to_all(self, rows: Tensor, kind: str) -> Tensor:
        self._record(kind, rows)
        return super().all_to_all(rows, kind)

    def all_to_all_ragged(
        self,
        fields: list[list[Tensor]],
        counts: np.ndarray,
        kinds: list[str],
        arriving: np.ndarray | None = None,
    ) -> tuple[list[list[Tensor]], np.ndarray]:
        kept = counts.reshape(*counts.shape[:2], -1).sum(2).diagonal()
        for tensors, kind in zip(fields, kinds, strict=True):
            for row, tensor in enumerate(tensors):
                self.recorded[row, self.kinds.index(kind)] += tensor.nbytes - kept[row] * tensor.itemsize
        if arriving is None:
            self.recorded[:, self.kinds.index("metadata")] -= 4 * counts[0, 0].size  # not sent to itself
        return super().all_to_all_ragged(fields, counts, kinds, arriving)

    def exchange(
        self, fields: Sequence[Tensor], sources: Sequence[int], kinds: Sequence[str]
    ) -> list[Tensor]:
        sends = np.isin(range(self.size), [source for w, source in enumerate(sources) if source != w])
        for rows, kind in zip(fields, kinds, strict=True):
            self.recorded[:, self.kinds.index(kind)] += sends * (rows.nbytes / len(rows))
        return super().exchange(fields, sources, kinds)

    def _record(self, kind: str, tensor: Tensor) -> None:
        """Record equally many bytes for every worker."""
        self.recorded[:, self.kinds.index(kind)] += tensor.nbytes / len(self.recorded)
