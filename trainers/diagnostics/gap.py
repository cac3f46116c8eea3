"""The gap: squared distance of the weights to the virtual iterate, which applies every gradient in full.

Stich, Cordonnier and Jaggi, 2018, https://arxiv.org/abs/1809.07599, prove convergence by that iterate. What
separates the two is the sum over all steps of G - m: G the mean of all n workers' gradients, m what the
optimizer was given instead. Only these two are looked at, so that the number means the same for every
feedback and for none. Under error feedback in gradient units the sum is the mean residual; under
feedback.scale=step with one learning rate throughout, the mean residual over that rate.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import Reduced, Segment
from compressors.core.backends import backend_of
from compressors.core.norms import squared_norm
from trainers.comm.communicator import Communicator

_BLOCK = 2**20  # elements whose differences are in memory at once


class Sums(NamedTuple):
    """Over all steps so far. ``applied`` is equal in all processes, the others add up over them."""

    gradients: (
        Tensor  # [D] float64, of this process's workers; what was added up before is the first process's
    )
    applied: Tensor  # [D] float64
    workers: Tensor  # [1] float64, n at the last time that ``gradients`` were added up; 0: never


class Drift:
    """Keeps the sums up to date. Outside of a step ``settle`` leaves them as a checkpoint may hold them."""

    def __init__(self, segments: list[Segment]) -> None:
        size, device = sum(segment.rows.shape[1] for segment in segments), segments[0].rows.device
        zeros = partial(torch.zeros, dtype=torch.float64, device=device)
        self.sums = Sums(zeros(size), zeros(size), zeros(1))
        self._backend = backend_of(device)

    def add_gradients(self, segments: list[Segment]) -> None:
        """Those of a step, before they are reduced."""
        self._backend.add_wide([segment.rows for segment in segments], self.sums.gradients)

    def add_applied(self, segments: list[Segment], reduced: Reduced) -> None:
        """What the same step hands to the optimizer."""
        means = [reduced.mean[segment.name].unsqueeze(0) for segment in segments]
        self._backend.add_wide(means, self.sums.applied)

    def measure(self, communicator: Communicator) -> dict[str, float]:
        """The squared norms; no ratio where the gradients add up to 0. One all-reduce, not charged."""
        self._add_up(communicator)
        apart = whole = 0.0
        for start in range(0, len(self.sums.applied), _BLOCK):
            mean = self.sums.gradients[start : start + _BLOCK] / communicator.size
            whole += squared_norm(mean).item()
            apart += squared_norm(mean.sub_(self.sums.applied[start : start + _BLOCK])).item()
        self._leave_to_first(communicator)
        ratio = {"diagnostics/gap_relative": apart / whole} if whole > 0 else {}
        return {"diagnostics/gap": apart, **ratio}

    @torch.inference_mode()
    def settle(self, communicator: Communicator) -> None:
        """Let the first process have the sum of all gradients, to be saved with what all share."""
        self._add_up(communicator)
        self._leave_to_first(communicator)

    @torch.inference_mode()
    def take_over(self, communicator: Communicator) -> None:
        """Go on from sums that were put back, perhaps of another number of workers."""
        before = self.sums.workers.item()
        if before not in (0, communicator.size):
            self.sums.gradients.mul_(communicator.size / before)
        self._leave_to_first(communicator)

    def _add_up(self, communicator: Communicator) -> None:
        self.sums.gradients.copy_(communicator.sum(self.sums.gradients))

    def _leave_to_first(self, communicator: Communicator) -> None:
        self.sums.workers.fill_(communicator.size)
        if communicator.rank > 0:
            self.sums.gradients.zero_()


@dataclass(frozen=True)
class Gap:
    """||sum of G - m||^2, and its share of ||sum of G||^2.

    Cost: in every step a pass over the gradients and one over their mean, in a measured one an all-reduce of
    D numbers of 8 bytes; 2 D of them in each process.
    """
