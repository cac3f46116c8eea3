"""Bytes of a process's workers: handed over by kind, and moved over their links."""

from collections.abc import Sequence

import numpy as np

from compressors.core.fields import KINDS
from trainers.comm.links import gather_bytes

Bytes = np.ndarray | float  # [W], or the same for all W


class Charges:
    """Bytes charged to W ``local_workers`` of n ``workers`` since they were last taken.

    Link bytes are those of the algorithms in use, if each of the n workers had its own machine. Headers of
    the protocols are not counted.
    """

    def __init__(self, workers: int, local_workers: range) -> None:
        self.kinds: tuple[str, ...] = ()
        self._size = workers
        self._handed = np.zeros((len(local_workers), 0), dtype=np.int64)  # [W, kinds]
        self.declare(KINDS)
        self._link = np.zeros((len(local_workers), 2))  # bytes that leave and reach each local worker
        self._relayed = np.zeros(len(local_workers))  # bytes that reach each local worker and are passed on
        self._elements: np.ndarray | float | None = None  # [n] sent, if the numbers differ between workers

    def declare(self, kinds: Sequence[str]) -> None:
        """Also count bytes of these kinds; known kinds keep their columns."""
        new = tuple(kind for kind in kinds if kind not in self.kinds)
        self.kinds += new
        self._handed = np.pad(self._handed, ((0, 0), (0, len(new))))
        self._of_kind = dict(zip(self.kinds, self._handed.T, strict=True))  # views

    def require(self, kind: str) -> None:
        """Raises ``ValueError`` for a kind that was not declared."""
        if kind not in self._of_kind:
            raise ValueError(f"kind {kind!r} is not declared: call declare_kinds() first")

    def hand_over(self, kind: str, num_bytes: np.ndarray | int) -> None:
        """Charge the local workers for bytes that they give to a collective."""
        self.require(kind)
        self._of_kind[kind] += num_bytes

    def hand_over_one(self, row: int, kind: str, num_bytes: int) -> None:
        """Charge one local worker, the ``row``-th."""
        self.require(kind)
        self._of_kind[kind][row] += num_bytes

    def link(self, leaving: Bytes, reaching: Bytes, relayed: Bytes | None = None) -> None:
        """Charge the links of the local workers.

        If a worker is a node of several processes, its first process passes on ``relayed`` bytes to the
        others: by default those that reach it.
        """
        self._link[:, 0] += leaving
        self._link[:, 1] += reaching
        self._relayed += reaching if relayed is None else relayed

    def link_of_gather(self, own: Bytes, everyones: Bytes) -> None:
        """Charge the links for a gather: ``own`` bytes leave n - 1 times, ``everyones - own`` arrive."""
        self.link(gather_bytes(1, self._size) * own, everyones - own)

    def gather(self, kind: str, own: np.ndarray | int, everyones: Bytes | None = None) -> None:
        """Charge a gather. ``everyones``: sum over all n workers; None if each has ``own`` bytes."""
        self.hand_over(kind, own)
        self.link_of_gather(own, self._size * own if everyones is None else everyones)

    def sent_elements(self, elements: np.ndarray | float) -> None:
        """Add elements that each worker has sent, [n]; infinite if they cannot be counted."""
        self._elements = elements if self._elements is None else self._elements + elements

    def take_handed(self) -> np.ndarray:
        """Bytes per local worker and kind, [W, kinds] int64, since the last call."""
        handed = self._handed.copy()
        self._handed[:] = 0
        return handed

    def take_link(self) -> np.ndarray:
        """Bytes that leave and reach each local worker, [W, 2] float64, since the last call."""
        link = self._link.copy()
        self._link[:] = 0
        return link

    def take_relayed(self) -> np.ndarray:
        """Bytes that are passed on inside each local worker's node, [W] float64, since the last call."""
        relayed = self._relayed.copy()
        self._relayed[:] = 0
        return relayed

    def take_largest_sent(self) -> float | None:
        """Elements of the worker that has sent most since the last call; infinite if not countable.

        None if all workers sent equally many.
        """
        elements, self._elements = self._elements, None
        return None if elements is None else float(np.max(elements))
