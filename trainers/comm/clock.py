"""Time in the collectives of a step, to separate communication from compression."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch


def now(device: torch.device) -> float:
    """``time.perf_counter`` after the work in the queue of ``device``."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


class Clock:
    """Measures host seconds inside the charged collectives of a reduction.

    Collectives of a single process are timed too, because the last one separates the work of each local
    worker, before it, from work that is done once per process.
    """

    def __init__(self) -> None:
        self._marks: list[torch.cuda.Event] | None = None
        self.restart()

    def restart(self, *, exact: bool = False) -> None:
        """Begin a reduction. ``exact`` waits for a GPU's kernels around every collective."""
        self.exact = exact
        self.seconds = 0.0  # in collectives: sending, receiving and waiting
        self.rounds = 0  # sequential messages of a worker, lower bound
        self.leading_seconds = 0.0  # work of local workers for which all others waited
        self.detour_bytes = 0.0  # bytes on the busiest paths of collectives minus the workers' mean
        self.ended: float | None = None  # end of the last collective, by ``now``

    def now(self) -> float:
        if self.exact:
            torch.cuda.synchronize()
        return time.perf_counter()

    def begin_marks(self) -> None:
        """Mark the beginning and the end of a reduction and of its collectives in the queue of a GPU."""
        self._marks = []
        self._mark()

    def take_marks(self) -> list[torch.cuda.Event]:
        """The marks since ``begin_marks``: beginning, of each collective beginning and end, end."""
        self._mark()
        marks, self._marks = self._marks, None
        assert marks is not None
        return marks

    def _mark(self) -> None:
        if self._marks is not None:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)

    def collective(self, rounds: int) -> Self:
        """Context manager around a collective with ``rounds`` sequential messages."""
        self.rounds += rounds
        return self

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Context manager around work of one worker for which all others wait."""
        started = self.now()
        try:
            yield
        finally:
            self.leading_seconds += self.now() - started

    def __enter__(self) -> None:
        self._mark()
        self._started = self.now()

    def __exit__(self, *error: object) -> None:
        self.ended = self.now()
        self.seconds += self.ended - self._started
        self._mark()

    def compression_seconds(self, reduce_seconds: float, ended: float, num_workers: int) -> float:
        """Seconds of compression for a worker on its own machine.

        This process compressed ``num_workers`` workers in a reduction of ``reduce_seconds`` that ended at
        ``ended``. Work after the last collective, such as the sum, is done once per process, as it would be
        on each machine; all other time is divided by the number of workers. ``leading_seconds`` are not
        included, because only one process has them in a step.
        """
        aggregation = 0.0 if self.ended is None else ended - self.ended
        of_each = reduce_seconds - self.seconds - self.leading_seconds - aggregation
        return of_each / num_workers + aggregation
