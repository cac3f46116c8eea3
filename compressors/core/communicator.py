"""The collectives that methods may use, as an interface; ``trainers/comm/communicator.py`` has them."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Communicator(Protocol):
    """n workers, of which ``local_workers`` live in this process. What is moved is charged, by kind."""

    size: int  # n
    local_workers: range
    rank: int  # of this process
    world_size: int  # P
    device: torch.device

    def all_reduce_mean(
        self, rows: list[Tensor], add_up: Callable[[Tensor], Tensor] | None = None
    ) -> list[Tensor]:
        """Rows [W, k] of segments to means over all n workers, [k]; ``add_up``: rows [m, k] to their sum."""

    def all_gather(self, rows: Tensor, kind: str) -> Tensor:
        """``[W, ...]`` to ``[n, ...]``, workers in order."""

    def all_gather_fields(self, fields: list[Tensor], kind: str) -> list[Tensor]:
        """Per segment what the local workers send, as much each, to what all n send, in a row."""

    def all_gather_counts(self, counts: np.ndarray, largest: int) -> np.ndarray:
        """Elements sent, ``[S, W]`` to ``[S, n]`` int64; none exceeds ``largest``."""

    def all_gather_ragged(
        self, fields: list[list[Tensor]], lengths: np.ndarray, kinds: list[str]
    ) -> list[list[Tensor]]:
        """Per field and segment what the local workers send to what all n send; ``lengths`` is [S, n]."""

    def all_gather_messages(
        self, messages: list[list[tuple[str, np.ndarray]]], largest: int
    ) -> list[np.ndarray]:
        """The local workers' messages, in parts with their kinds, to those of all n, [...] uint8."""

    def broadcast_from(self, worker: int, tensor: Tensor, kind: str) -> Tensor:
        """What ``worker`` sends, [...]; the other processes give a tensor of the same shape and dtype."""

    def all_to_all(self, rows: Tensor, kind: str) -> Tensor:
        """``[W, n, ...]``, of which ``[w, v]`` goes to worker v, to the same from worker v."""

    def reduce_scatter_mean(self, rows: Tensor) -> Tensor:
        """``[W, n, ...]`` to ``[W, ...]``: of worker w, the mean over all n workers of their part w."""

    def exchange(self, rows: Tensor, partners: Sequence[int], kind: str) -> Tensor:
        """``[W, ...]`` to those of the workers' partners, one for each of the n workers, in pairs."""
