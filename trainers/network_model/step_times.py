"""Predicted times of data-parallel steps over a network, by the latency-bandwidth model.

Standard library only, because code that reads results uses it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from trainers.network_model.rates import in_prose

TIE = 0.1  # a smaller relative difference between two predictions counts as none
BUSY_SECONDS = 0.005  # a short collective takes longer only where other programs use the cores


class Line(NamedTuple):
    """A quantity that grows linearly with the number of workers."""

    of_one: float  # for a single worker
    per_other: float = 0.0  # for every further one

    def at(self, workers: int) -> float:
        return self.of_one + self.per_other * (workers - 1)


class Network(NamedTuple):
    """The links of the workers, each on its own machine, and the collectives that use them."""

    bits_per_second: float
    latency_seconds: float = 0.0  # of a message
    # Rate of the collectives over a link without limit: gloo uses processor time for every byte.
    backend_bits_per_second: float = math.inf
    backend_seconds: float = 0.0  # that a short collective takes without a network
    # With nodes, which take the place of workers: workers of each, and the rate of a worker's link inside
    workers_per_node: int = 1
    inside_bits_per_second: float = math.inf

    def __str__(self) -> str:
        slow, short = self.backend_bits_per_second, self.backend_seconds
        collectives = "" if math.isinf(slow) else f"collectives at most {in_prose(slow)}, "
        busy = " (the machine is busy: measure again)" if short > BUSY_SECONDS else ""
        collectives += f"at least {1e6 * short:.0f} µs for each{busy}, " if short else ""
        link = "without limit" if math.isinf(self.bits_per_second) else in_prose(self.bits_per_second)
        nodes = ""
        if self.workers_per_node > 1:
            rate = self.inside_bits_per_second
            inside = "without limit" if math.isinf(rate) else in_prose(rate)
            nodes = f", {self.workers_per_node} workers in a node, links inside {inside}"
        return f"link {link}, {collectives}{1e6 * self.latency_seconds:g} µs per message{nodes}"

    def inside_bytes(self, gradient_bytes: float, traffic_bytes: float) -> float:
        """Bytes that leave a worker inside its node: an all-reduce of the gradient, and what reaches it."""
        share = (self.workers_per_node - 1) / self.workers_per_node
        return share * (2 * gradient_bytes + traffic_bytes)


class Cost(NamedTuple):
    """Cost of a method in one exchange, beside forward pass, backward pass and update."""

    name: str
    all_reduced_bytes: float  # that a worker hands to all-reduces
    gathered_bytes: float  # that it hands to gathers
    seconds: Line  # processor time of compression and aggregation
    rounds: Line  # sequential messages
    local_steps: int = 1  # H, steps of a worker from one exchange to the next
    delay: int = 0  # D, steps during which messages are on their way
    # How many times its bytes count for the backend: gloo adds an entry of fp16 as slowly as one of fp32
    backend_weight: float = 1.0

    @property
    def collectives(self) -> float:
        """Calls in an exchange: a gather has one round, an all-reduce two for every further worker."""
        return self.rounds.of_one + self.rounds.per_other / 2

    def traffic_bytes(self, workers: int) -> float:
        """Bytes that leave a worker: ring all-reduces, and gathers to n - 1 others."""
        return (workers - 1) * (2 * self.all_reduced_bytes / workers + self.gathered_bytes)


class Prediction(NamedTuple):
    """Seconds of a method's step, and its parts; a step has 1 / H of an exchange."""

    name: str
    step: float
    compute: float  # forward pass, backward pass and update
    compression: float
    communication: float  # that the backward pass does not hide
    traffic_bytes: float  # that leave a worker


def predict(
    cost: Cost,
    compute_seconds: float,
    workers: int,
    network: Network,
    overlap: float = 0.0,
    gradient_bytes: float = 0.0,
) -> Prediction:
    """Seconds of a step: t + (s + max(0, c b + a r + 8 v / B + 8 u / A - (overlap + D) t)) / H.

    t: forward pass, backward pass and update; s, r and v: processor time, rounds and traffic of the method in
    an exchange, which follows every H steps; c: its collectives; D: its ``delay``; b: the time of a short
    collective without a network; a: latency; B: the bandwidth of the link or, if it is lower, of the backend,
    divided by ``backend_weight``. ``overlap`` is the part of t during which messages are on their way. With
    nodes, ``workers`` is their number, u are the bytes inside a node, which depend on ``gradient_bytes``, and
    A is the bandwidth there.
    """
    backend = network.backend_bits_per_second / cost.backend_weight
    traffic = cost.traffic_bytes(workers)
    inside = network.inside_bytes(gradient_bytes, traffic) / min(network.inside_bits_per_second, backend)
    across = traffic / min(network.bits_per_second, backend)
    sending = network.latency_seconds * cost.rounds.at(workers) + 8 * across + 8 * inside
    sending += network.backend_seconds * cost.collectives
    waiting = max(0.0, sending - (overlap + cost.delay) * compute_seconds)
    seconds, waiting, traffic = (
        part / cost.local_steps for part in (cost.seconds.at(workers), waiting, traffic)
    )
    return Prediction(
        cost.name, compute_seconds + seconds + waiting, compute_seconds, seconds, waiting, traffic
    )


class Verdict(NamedTuple):
    """The method with the shortest step, compared with dense training and with the next method."""

    best: Prediction
    over_dense: float  # dense step divided by the best one
    next: Prediction
    over_next: float  # next step divided by the best one

    def __str__(self) -> str:
        if self.over_next - 1 < TIE:
            second = f"{self.next.name} takes as long within {TIE:.0%}"
        else:
            second = f"{self.over_next:.2f} times as fast as the next, {self.next.name}"
        if self.over_dense == 1:
            return f"best: {self.best.name}; {second}"
        if self.over_dense - 1 < TIE:
            name, times = self.best.name, f"{self.over_dense:.2f} times as fast"
            return f"no method is {TIE:.0%} faster than dense: the best, {name}, is {times}"
        return f"best: {self.best.name}, {self.over_dense:.2f} times as fast as dense; {second}"


def judge(predictions: Sequence[Prediction]) -> Verdict:
    """Compare predictions. Raises ``ValueError`` for fewer than two, and if none is named ``dense``."""
    if len(predictions) < 2:
        raise ValueError(f"a comparison needs two methods, got {len(predictions)}")
    dense = next((found for found in predictions if found.name == "dense"), None)
    if dense is None:
        names = ", ".join(found.name for found in predictions)
        raise ValueError(f"a comparison needs a prediction named dense, got {names}")
    best, second, *_ = sorted(predictions, key=lambda found: found.step)
    return Verdict(best, dense.step / best.step, second, second.step / best.step)


def table(predictions: Sequence[Prediction]) -> str:
    """A Markdown table of the predictions, the shortest step first; one of them is named ``dense``."""
    dense = next(found for found in predictions if found.name == "dense")
    lines = [
        "| method | step, ms | compute | compression | communication | MB per step | dense over this |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for found in sorted(predictions, key=lambda one: one.step):
        seconds = (found.step, found.compute, found.compression, found.communication)
        cells = [f"{1e3 * value:,.1f}" for value in seconds]
        cells += [_in_megabytes(found.traffic_bytes), f"{dense.step / found.step:.2f}"]
        lines.append(f"| {found.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _in_megabytes(num_bytes: float) -> str:
    """Two digits after the point, and three significant ones for less than a megabyte."""
    return f"{num_bytes / 1e6:,.2f}" if num_bytes >= 1e6 or not num_bytes else f"{num_bytes / 1e6:.3g}"
