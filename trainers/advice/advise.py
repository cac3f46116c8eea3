"""Advice for a script: the fastest method for its model on a network."""

import math
from typing import NamedTuple

from trainers.advice.costs import Settings, measure_costs
from trainers.advice.gloo import gloo_bits_per_second
from trainers.comm.ddp_hook import CompressionState
from trainers.records.rates import bits_per_second
from trainers.records.step_times import Network, Prediction, Verdict, judge, predict


class Advice(NamedTuple):
    """Predicted steps of every method, and the verdict on them."""

    predictions: list[Prediction]
    verdict: Verdict


def advise(
    state: CompressionState,
    *,
    compute_seconds: float,
    bandwidth: str,
    workers: int | None = None,
    latency_seconds: float = 0.0,
    overlap: float = 0.0,
    settings: Settings | None = None,
) -> Advice:
    """Measure compression for the script's parameters on this machine; predict steps over ``bandwidth``.

    ``compute_seconds`` is the script's own time of forward pass, backward pass and update. ``workers`` is by
    default the number of processes of the script. Call it on one process, between steps; it takes the time
    and memory of some compressions and leaves ``state`` as it is. Raises ``ValueError`` for numbers out of
    range.
    """
    on_gpu = state.layout.device.type == "cuda"
    network = Network(
        bits_per_second(bandwidth), latency_seconds, math.inf if on_gpu else gloo_bits_per_second()
    )
    costs = measure_costs(state.layout, settings)
    count = state.communicator.size if workers is None else workers
    predictions = [predict(cost, compute_seconds, count, network, overlap) for cost in costs]
    return Advice(predictions, judge(predictions))
