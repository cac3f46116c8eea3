"""Warning about a threshold that sends nothing, or every element, for an epoch or for a whole run."""

import sys
from dataclasses import dataclass

import torch

from trainers.checkpoint.state import TrainingState
from trainers.comm.communicator import Communicator

_ADVICE = {0.0: "a lower compressor.threshold sends more", 1.0: "a higher compressor.threshold sends less"}


@dataclass(eq=False)
class ThresholdWatch:
    """Prints the warning once per run, in one line, in the first process."""

    threshold: float
    state: TrainingState
    communicator: Communicator

    def __post_init__(self) -> None:
        self.has_warned = False
        self.has_judged = False
        self._begin()

    def after_step(self, *, is_last: bool) -> None:
        """Check the density of an epoch, or of a shorter run, after its last step; all processes call it."""
        passed = self.state.epoch - self._epoch
        is_short_run = is_last and not self.has_judged
        if self.has_warned or (0 <= passed < 1 - 1e-6 and not is_short_run):
            return
        steps = self.state.ledger.steps - self._steps
        # Error feedback may send a step's entries in later steps, so epochs of one step are judged together,
        # at the end. After a trial of a learning rate, the epoch is smaller than before.
        if 0 < steps <= passed + 1e-6 and not is_last:
            return
        if passed > 0 and steps > 1:
            self._judge(steps)
        self._begin()

    def _begin(self) -> None:
        ledger = self.state.ledger
        self._epoch, self._steps = self.state.epoch, ledger.steps
        self._sent = ledger.total_counts.sent.sum(1)  # [W], elements so far

    def _judge(self, steps: int) -> None:
        self.has_judged = True
        ledger = self.state.ledger
        sent = ledger.total_counts.sent.sum(1) - self._sent
        everyones = self.communicator.collect(torch.from_numpy(sent)[:, None])  # [n, 1]
        density = float(everyones.mean()) / (steps * ledger.layout.num_parameters)
        if density not in _ADVICE:
            return
        self.has_warned = True
        if self.communicator.rank == 0:
            amount = "everything" if density else "nothing"
            print(
                f"warning: lambda {self.threshold:.4g} sent {amount} in steps "
                f"{self.state.step - steps + 1} to {self.state.step} (density {density:.0%}); "
                f"{_ADVICE[density]}",
                file=sys.stderr,
                flush=True,
            )
