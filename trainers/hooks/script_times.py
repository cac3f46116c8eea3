"""Times of a script's steps: of reductions, of compression, and of all that is not in the hook."""

import statistics
import time
from collections import deque
from itertools import pairwise

import torch

from trainers.comm.clock import Clock
from trainers.network_model.step_costs import STEPS

UNREAD = 8  # steps whose work a GPU may not have done yet


class ScriptTimes:
    """Measures the steps of a hook without waiting for a GPU.

    A GPU's times are those between events in the queue of its work, read in a later step.
    """

    def __init__(self, clock: Clock, device: torch.device) -> None:
        self.clock = clock
        self.is_gpu = device.type == "cuda"
        self.compression_seconds: float | None = None  # of the last step, or on a GPU of one not yet counted
        self.num_buckets = 0  # of this step, or the last one
        self.reduce_seconds = 0.0  # of the host, in this step or the last one
        self.step_seconds: deque[float] = deque(maxlen=STEPS)  # between the ends of two backward passes
        self._exposed: deque[float] = deque(maxlen=STEPS)  # seconds of steps that the hook adds
        self._unread: deque[list[list[torch.cuda.Event]]] = deque(maxlen=UNREAD)  # of steps, of buckets
        self._buckets: list[list[torch.cuda.Event]] = []  # of this step
        self._is_new_step = True
        self._last_bucket: float | None = None  # when DDP handed it over, by time.perf_counter
        self._ended: float | None = None  # the last step

    def hand_over_last(self) -> None:
        """DDP has handed over the last bucket: the backward pass ends, and waits for the reduction."""
        self._last_bucket = time.perf_counter()

    def begin(self) -> None:
        """Begin the reduction of a bucket."""
        self._started = time.perf_counter()
        if self._is_new_step:
            self.reduce_seconds, self.num_buckets, self._is_new_step = 0.0, 0, False
            self.clock.restart()
        self.num_buckets += 1
        if self.is_gpu:
            self.clock.begin_marks()

    def end(self) -> None:
        """End the reduction of a bucket."""
        if self.is_gpu:
            self._buckets.append(self.clock.take_marks())
        self.reduce_seconds += time.perf_counter() - self._started

    def close_step(self) -> None:
        now, clock = time.perf_counter(), self.clock
        if self._ended is not None:
            self.step_seconds.append(now - self._ended)
        if self.is_gpu:
            self._unread.append(self._buckets)
            self._buckets = []
            self._read()
        else:
            self.compression_seconds = self.reduce_seconds - clock.seconds - clock.leading_seconds
            since = self.reduce_seconds if self._last_bucket is None else now - self._last_bucket
            self._exposed.append(since)
        self._is_new_step, self._ended = True, now

    def compute_seconds(self) -> float | None:
        """Median seconds of a step outside of the hook; None before the third step."""
        if len(self.step_seconds) < 2 or not self._exposed:
            return None
        return max(0.0, statistics.median(self.step_seconds) - statistics.median(self._exposed))

    def metrics(self) -> dict[str, float]:
        found = {} if self._ended is None else {"time/reduce_seconds": self.reduce_seconds}
        return found | ({"time/step_seconds": self.step_seconds[-1]} if self.step_seconds else {})

    def _read(self) -> None:
        """Read the times of the last step that the GPU has finished, if there is one."""
        self.compression_seconds = None
        while self._unread and all(marks[-1].query() for marks in self._unread[0]):
            buckets = self._unread.popleft()
            seconds = [[0.001 * a.elapsed_time(b) for a, b in pairwise(marks)] for marks in buckets]
            self.compression_seconds = sum(sum(own[::2]) for own in seconds)  # the others are collectives
            self._exposed.append(sum(map(sum, seconds)))
