"""Summaries of the network benchmark: medians, headers, break-even points."""

import itertools
import math
import statistics
from collections import defaultdict
from typing import Any, NamedTuple

from collectives import COLLECTIVES, DENSE, TINY, TINY_CALLS
from netns import bits_per_second

from trainers.comm.links import all_reduce_bytes, gather_bytes

CALIBRATIONS = (*COLLECTIVES, "control")  # each with ``TINY_CALLS`` calls
DENSE_CALLS, DENSE_BYTES, TINY_BYTES = 2, 4 * DENSE, 4 * TINY
CONTROL = {"exchange": 2}  # calls of this project's step that are not part of the algorithm
SETTLING = 1  # first steps of a window, which are not timed
SLOW_STEPS, SLOW_BELOW = 3, 5e8  # steps of a dense window at rates below SLOW_BELOW, in bits per second
TITLES = {
    "ddp": "DDP",
    "ddp_fp16": "DDP, fp16_compress_hook",
    "ddp_powersgd": "DDP, powerSGD_hook, rank 2",
}


class Rate(NamedTuple):
    text: str
    bits_per_second: float


class Method(NamedTuple):
    """A method of training; ``settings`` are its settings of run.py in addition to the common ones."""

    name: str
    overlap: bool = False
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [TITLES.get(self.name, self.name), *self.settings, *(["overlap"] if self.overlap else [])]
        return ", ".join(words)


class Window(NamedTuple):
    """Traffic in a window of steps."""

    sent_bytes: float  # counted by a host's interface, mean over hosts
    calls: dict[str, float]  # calls of collectives


class Parts(NamedTuple):
    """Medians of a step and its parts in seconds. With overlap the sum of the parts exceeds the step."""

    step: float
    compute: float  # forward and backward
    compression: float
    waiting: float  # in collectives: sending, receiving, waiting for the others
    update: float


class Turns(NamedTuple):
    """Steps of several methods that ran alternately, in one training each."""

    hosts: int
    methods: list[Method]
    rates: list[Rate]
    seconds: list[list[list[float]]]  # [rate][method][round], medians over a turn

    def against(self, rate: int, method: int, other: int) -> float:
        """Time of the method's step divided by that of the other one, median over rounds."""
        pairs = zip(self.seconds[rate][method], self.seconds[rate][other], strict=True)
        return statistics.median(own / theirs for own, theirs in pairs)


class Crossing(NamedTuple):
    """The rate above which a method is slower than dense training, in bits per second."""

    method: Method
    points: list[tuple[Rate, float, float]]  # seconds of a dense and of a compressed step
    predicted: float
    measured: float  # 0: never faster; infinite: faster at every rate


def rate(text: str) -> Rate:
    return Rate(text, bits_per_second(text))


UNLIMITED = rate("unlimited")


def traffic(collective: str, num_bytes: float, processes: int) -> float:
    """Bytes without headers that leave a process which passes ``num_bytes`` to the collective."""
    return (all_reduce_bytes if collective == "all_reduce" else gather_bytes)(num_bytes, processes)


def steps_at(method: Method, at: Rate, steps: int) -> int:
    """The number of steps of a window."""
    is_slow = method.name in ("ddp", "ddp_fp16", "none") and at.bits_per_second < SLOW_BELOW
    return min(SLOW_STEPS, steps) if is_slow else steps


class Measured:
    """All measurements with one number of hosts."""

    def __init__(self, hosts: int, batch_size: int) -> None:
        self.hosts, self.batch_size = hosts, batch_size
        self.steps: dict[tuple[Method, Rate], list[dict[str, float]]] = defaultdict(list)
        # Traffic of the last window, and its steps.
        self.windows: dict[tuple[Method, Rate], tuple[Window, list[dict[str, float]]]] = {}
        self.alone: dict[Method, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.per_call: dict[str, float] = {}  # header bytes
        self.control_bytes = 0.0  # per step
        self.share: dict[Rate, float] = {}  # header bytes per byte of a dense all-reduce

    def add(self, method: Method, rates: list[Rate], answer: dict[str, Any], windows: list[Window]) -> None:
        """Add a training, whose first window has no rate."""
        for at, steps, window in zip(rates, answer["steps"][1:], windows, strict=True):
            self.steps[method, at] += steps[SETTLING:]
            self.windows[method, at] = window, steps
        for name in ("compute", "alone"):
            self.alone[method][name] += answer.get(name, [])

    def calibrate(self, rates: list[Rate], windows: list[Window]) -> None:
        """Add windows of known traffic: ``CALIBRATIONS``, then a dense run at each rate."""
        for name, window in zip(CALIBRATIONS, windows, strict=False):
            sent = window.sent_bytes / TINY_CALLS
            if name == "control":
                self.control_bytes = sent
            else:
                self.per_call[name] = sent - traffic(name, TINY_BYTES, self.hosts)
        dense = DENSE_CALLS * traffic("all_reduce", DENSE_BYTES, self.hosts)
        for at, window in zip(rates, windows[len(CALIBRATIONS) :], strict=True):
            self.share[at] = window.sent_bytes / dense - 1

    def parts(self, method: Method, at: Rate) -> Parts:
        found = {
            name: statistics.median(step[name] for step in self.steps[method, at])
            for name in self.steps[method, at][0]
        }
        if method.name.startswith("ddp"):  # its parts overlap: two are measured alone, waiting is the rest
            compute = statistics.median(self.alone[method]["compute"])
            compression = max(0.0, statistics.median(self.alone[method]["alone"]) - compute)
            waiting = max(0.0, found["gradient"] - compute - compression)
            return Parts(found["step"], compute, compression, waiting, found["update"])
        compression = found["reduce"] - found["communication"]
        compute = found["gradient"]
        # With overlap it also contains the part of the reduction that the backward pass did not hide.
        plain = Method("ddp") if method.name == "none" else method._replace(overlap=False)
        if plain != method and (plain, at) in self.steps:
            compute = self.parts(plain, at).compute
        return Parts(found["step"], compute, compression, found["communication"], found["update"])

    def bytes_of(self, method: Method, at: Rate) -> tuple[float, float, float, float]:
        """Bytes per step: of the ledger, those that leave a host, those of its interface, and a difference.

        The difference in per cent is that of the interface from the second number plus its headers. NaN for
        torch's methods."""
        window, charged = self.windows[method, at]
        steps = len(charged)
        ledger, leaving = (
            statistics.mean(step[name] for step in charged) for name in ("bytes", "link_bytes")
        )
        interface = window.sent_bytes / steps
        if method.name.startswith("ddp"):
            return math.nan, math.nan, interface, math.nan
        headers = sum(
            (window.calls.get(name, 0) / steps - CONTROL.get(name, 0)) * of_call
            for name, of_call in self.per_call.items()
        )
        due = leaving * (1 + self.share[at]) + headers + self.control_bytes
        return ledger, leaving, interface, 100 * (interface / due - 1)


def crossing(points: list[tuple[Rate, float, float]]) -> float:
    """Bits per second at which compressed steps take as long as dense ones.

    ``points`` are rates with the seconds of a dense and of a compressed step. Between two rates the logarithm
    of the ratio of both is interpolated linearly in the logarithm of the rate.
    """
    advantages = [
        (at.bits_per_second, math.log(dense / ours)) for at, dense, ours in sorted(points, key=_by_rate)
    ]
    if advantages[0][1] <= 0:
        return 0.0
    for (below, gain), (above, loss) in itertools.pairwise(advantages):
        if loss <= 0:
            if math.isinf(above):
                return below  # at least
            return below * (above / below) ** (gain / (gain - loss))
    return math.inf


def crossing_of(measured: Measured, method: Method, predictions: list[float]) -> Crossing:
    dense = Method("none")
    points = [
        (at, measured.parts(dense, at).step, measured.parts(method, at).step)
        for of, at in measured.steps
        if of == method
    ]
    return Crossing(method, points, statistics.median(predictions), crossing(points))


def _by_rate(point: tuple[Rate, float, float]) -> float:
    return point[0].bits_per_second
