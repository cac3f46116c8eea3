"""Measured seconds of a worker's forward pass, backward pass and update."""

import statistics

from trainers.advance import Advance
from trainers.advice.costs import UNCOUNTED
from trainers.loop import Trainer


def compute_seconds(trainer: Trainer, steps: int) -> float:
    """Median seconds of a step without its reduction, of a trainer with one worker."""
    state = trainer._state()
    advance = Advance(state, trainer.loader, trainer.communicator)
    trainer.model.train()
    taken = []
    for _ in range(UNCOUNTED + steps):
        times = advance(1.0, measure=False).times(state.gradient_step)
        taken.append(times["time/gradient_seconds"] + times["time/update_seconds"])
    return statistics.median(taken[UNCOUNTED:])
