"""The gap: squared distance of the weights to the virtual iterate, which applies every gradient in full.

Stich, Cordonnier and Jaggi, 2018, https://arxiv.org/abs/1809.07599, prove convergence by this iterate. The
distance is the sum over all steps of G - m, where G is the mean of all n workers' gradients and m the mean
that the optimizer gets. Only G and m are used, so the gap has the same meaning for every feedback and without
feedback. With error feedback in gradient units the sum is the mean residual; with feedback.scale=step and a
constant learning rate it is the mean residual over the rate.
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
    """Sums over all steps so far. ``applied`` is equal in all processes; ``gradients`` must be summed over
    them."""

    gradients: Tensor  # [D] float64, of this process's workers; the first process also has earlier totals
    applied: Tensor  # [D] float64
    workers: Tensor  # [1] float64, n at the last ``settle``; 0: never


class Drift:
    """Updates the sums. ``settle``, between steps, brings them into the form of a checkpoint."""

    def __init__(self, segments: list[Segment]) -> None:
        size, device = sum(segment.rows.shape[1] for segment in segments), segments[0].rows.device
        zeros = partial(torch.zeros, dtype=torch.float64, device=device)
        self.sums = Sums(zeros(size), zeros(size), zeros(1))
        self._backend = backend_of(device)

    def add_gradients(self, segments: list[Segment]) -> None:
        """Add the gradients of a step, before the reduction."""
        self._backend.add_wide([segment.rows for segment in segments], self.sums.gradients)

    def add_applied(self, segments: list[Segment], reduced: Reduced) -> None:
        """Add the mean that the optimizer gets in the same step."""
        means = [reduced.mean[segment.name].unsqueeze(0) for segment in segments]
        self._backend.add_wide(means, self.sums.applied)

    def measure(self, communicator: Communicator) -> dict[str, float]:
        """The squared norms; no ratio if the gradients sum to 0. One all-reduce, not charged."""
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
        """Move the sum of all gradients to the first process, which saves it with the shared state."""
        self._add_up(communicator)
        self._leave_to_first(communicator)

    @torch.inference_mode()
    def take_over(self, communicator: Communicator) -> None:
        """Continue from restored sums, possibly of another number of workers."""
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

    Cost: in every step a pass over the gradients and one over their mean; in a measured step an all-reduce of
    D numbers of 8 bytes; memory for 2 D such numbers in each process.
    """
