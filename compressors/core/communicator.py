"""Interface of the collectives; ``trainers/comm/communicator.py`` implements it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Communicator(Protocol):
    """n workers, of which ``local_workers`` are in this process. Bytes of transfers are counted by kind."""

    size: int  # n
    local_workers: range
    rank: int  # of this process
    world_size: int  # P
    device: torch.device

    def all_reduce_mean(
        self,
        rows: list[Tensor],
        add_up: Callable[[Tensor], Tensor] | None = None,
        kind: str = "values",
    ) -> list[Tensor]:
        """Means over all n workers, [k], of the segments' rows [W, k]; ``add_up`` sums rows [m, k]."""

    def all_gather(self, rows: Tensor, kind: str) -> Tensor:
        """``[W, ...]`` of all processes, joined in worker order, ``[n, ...]``."""

    def all_gather_fields(self, fields: list[Tensor], kind: str) -> list[Tensor]:
        """Per segment the fields of all n workers, joined in worker order; all have equal lengths."""

    def all_gather_counts(self, counts: np.ndarray, largest: int, *, of_elements: bool = True) -> np.ndarray:
        """Counts of all workers, ``[S, n]`` int64, from ``[S, W]``; none exceeds ``largest``.

        ``of_elements`` is false for lengths from which the numbers of elements sent do not follow.
        """

    def all_gather_ragged(
        self, fields: list[list[Tensor]], lengths: np.ndarray, kinds: list[str]
    ) -> list[list[Tensor]]:
        """Per field and segment the entries of all n workers, joined in order; ``lengths`` is [S, n]."""

    def all_gather_messages(
        self, messages: list[list[tuple[str, np.ndarray]]], largest: int
    ) -> list[np.ndarray]:
        """The messages of all n workers, [...] uint8 each; local ``messages`` are parts with their kinds."""

    def broadcast_from(self, worker: int, tensor: Tensor, kind: str) -> Tensor:
        """The tensor of ``worker``, [...]; other processes pass a tensor of the same shape and dtype."""

    def collect(self, rows: Tensor) -> Tensor:
        """``all_gather`` of what is not counted."""

    def leading(self) -> AbstractContextManager[object]:
        """Context manager around work of one worker during which all others wait."""

    def all_to_all(self, rows: Tensor, kind: str) -> Tensor:
        """``[W, n, ...]``: sends ``[w, v]`` to worker v and returns the parts received from worker v."""

    def all_to_all_ragged(
        self,
        fields: list[list[Tensor]],
        counts: np.ndarray,
        kinds: list[str],
        arriving: np.ndarray | None = None,
    ) -> tuple[list[list[Tensor]], np.ndarray]:
        """Per field the entries that each local worker receives, in worker order, and their counts, [W, n].

        The first ``counts[w, 0]`` entries of worker w go to worker 0, and so on. ``arriving`` are the counts
        received, if they are known.
        """

    def exchange(
        self, fields: Sequence[Tensor], sources: Sequence[int], kinds: Sequence[str]
    ) -> list[Tensor]:
        """Per field the rows that local workers receive, ``[W, ...]``: worker w from ``sources[w]``."""
