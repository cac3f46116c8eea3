"""Time spent in the collectives of a step, which is the part of a reduction that is no compression."""

import time
from typing import Self

import torch


class Clock:
    """Runs inside the charged collectives of a reduction; seconds, on the host.

    A collective that has nobody to talk to counts too: what comes after the last one is done once in
    every process, what comes before it once for every local worker.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self, *, exact: bool = False) -> None:
        """Begin a reduction. ``exact`` waits for a GPU's kernels around every collective."""
        self.exact = exact
        self.seconds = 0.0  # in collectives: sending, receiving, waiting for the others
        self.rounds = 0  # messages of a worker that had to wait for one another, at least
        self.ended: float | None = None  # when the last collective did, by ``now``

    def now(self) -> float:
        if self.exact:
            torch.cuda.synchronize()
        return time.perf_counter()

    def collective(self, rounds: int) -> Self:
        """Around a collective in which a message goes ``rounds`` times from worker to worker."""
        self.rounds += rounds
        return self

    def __enter__(self) -> None:
        self._started = self.now()

    def __exit__(self, *error: object) -> None:
        self.ended = self.now()
        self.seconds += self.ended - self._started

    def compression_seconds(self, reduce_seconds: float, ended: float, num_workers: int) -> float:
        """What a worker alone on its machine would have spent on compression.

        ``num_workers`` were compressed here, in a reduction of ``reduce_seconds`` up to ``ended``. Their sum
        is formed once, in each process as on each machine; all else is divided by their number.
        """
        aggregation = 0.0 if self.ended is None else ended - self.ended
        return (reduce_seconds - self.seconds - aggregation) / num_workers + aggregation
