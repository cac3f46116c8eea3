"""Advice for a script: the fastest method for its model on a network."""

import math
from typing import NamedTuple

from compressors.core.checks import is_count, is_real, require
from trainers.hooks.advice.costs import Settings, measure_costs
from trainers.hooks.advice.gloo import Speed, gloo_speed
from trainers.hooks.state import CompressionState
from trainers.network_model.rates import bits_per_second
from trainers.network_model.step_times import Network, Prediction, Verdict, judge, predict, table


class Advice(NamedTuple):
    """Predicted step times of every method, and the verdict on them; as text, with what was assumed."""

    predictions: list[Prediction]
    verdict: Verdict
    assumed: str  # workers, network and settings of the methods

    def __str__(self) -> str:
        return f"{self.assumed}\n\n{table(self.predictions)}\n\n{self.verdict}"


def advise(
    state: CompressionState,
    *,
    bandwidth: str,
    compute_seconds: float | None = None,
    workers: int | None = None,
    latency_seconds: float = 5e-5,
    overlap: float = 0.0,
    density: float | None = None,
    rank: int = 2,
    steps: int = 5,
) -> Advice:
    """Measure compression of the script's parameters on this machine; predict step times on a network.

    ``bandwidth`` is that of a worker's link, such as ``10gbit``, or ``unlimited``. ``compute_seconds`` is the
    script's time for forward pass, backward pass and update of a step, by default the median of the time
    that its steps spent outside of the hook. ``workers`` is by default the number of workers of ``state``,
    ``latency_seconds`` that of a message. ``overlap`` is the part of ``compute_seconds`` during which
    messages are sent. ``density`` is the share of the entries that Top-k and the threshold send, by default
    what ``state`` has sent so far; ``rank`` is that of PowerSGD, and ``steps`` the number of measured steps.
    Call it in one process, such as that of rank 0, between steps, while the others wait; it takes the time
    and memory of some compressions and does not change ``state``. Predicted are steps of DDP, also for a
    state of ``compress_fsdp``. Raises ``ValueError`` for another form of
    ``bandwidth``, for numbers out of range, without ``compute_seconds`` before the state's third step,
    without ``density`` if ``state`` has sent none or all of the entries, and on a CPU with too little memory;
    ``RuntimeError`` if gloo fails.
    """
    if compute_seconds is None:
        compute_seconds = state.times.compute_seconds()
        if compute_seconds is None:
            raise ValueError("compute_seconds must be given before the state's third step")
    if density is None:
        density = state.ledger.local_density()
        if not 0 < density < 1:
            raise ValueError(f"density must be given for a state that has sent {density:.0%} of the entries")
    for name, seconds in (("compute_seconds", compute_seconds), ("latency_seconds", latency_seconds)):
        require(is_real(seconds) and seconds >= 0, name, "a finite number >= 0", seconds)
    require(is_real(overlap) and 0 <= overlap <= 1, "overlap", "in [0, 1]", overlap)
    require(workers is None or is_count(workers), "workers", "an integer >= 1, or None", workers)
    settings = Settings(density=density, rank=rank, steps=steps)
    on_gpu = state.layout.device.type == "cuda"
    backend = Speed(math.inf, 0.0) if on_gpu else gloo_speed()
    network = Network(bits_per_second(bandwidth), latency_seconds, *backend)
    costs = measure_costs(state.layout, settings)
    count = state.communicator.size if workers is None else workers
    predictions = [predict(cost, compute_seconds, count, network, overlap) for cost in costs]
    return Advice(predictions, judge(predictions), f"{count} workers, {network}; {settings}")
