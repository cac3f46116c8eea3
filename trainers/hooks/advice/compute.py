"""Measured seconds of a worker's forward pass, backward pass and update."""

import statistics

from trainers.hooks.advice.costs import UNCOUNTED
from trainers.step.advance import Advance
from trainers.training import Training


def compute_seconds(training: Training, steps: int) -> float:
    """Median seconds of a step without its reduction, of a training with one worker."""
    state = training.new_state()
    advance = Advance(state, training.loader, training.communicator)
    training.model.train()
    taken = []
    for _ in range(UNCOUNTED + steps):
        times = advance(1.0, measure=False).times()
        taken.append(times["time/gradient_seconds"] + times["time/update_seconds"])
    return statistics.median(taken[UNCOUNTED:])
