"""The gap: squared distance of the weights to the virtual iterate, which applies every gradient in full.

Stich, Cordonnier and Jaggi, 2018, https://arxiv.org/abs/1809.07599, prove convergence by this iterate. The
distance is the sum over all steps of G - m, where G is the mean of all n workers' gradients and m the mean
that the optimizer gets. Only G and m are used, so the gap has the same meaning for every feedback and without
feedback. With error feedback in gradient units the sum is the mean residual; with feedback.scale=step and a
constant learning rate it is the mean residual over the rate.

Under error feedback a lemma of such proofs bounds the gap by the gradients alone. From p = e + g and
||p - C(p)|| <= a ||p|| + b follows ||e'|| <= a (||e|| + ||g||) + b for every worker and segment: a is
sqrt(1 - k / d) for Top-k, and b is sqrt(d) lambda for a hard threshold, whose bound d lambda^2 does not
depend on the gradients. If no gradient's norm exceeds sigma, the gap under Top-k is at most
(1 - delta) (2 sigma / delta)^2, delta = k / d (Karimireddy et al., 2019, https://arxiv.org/abs/1901.09847,
lemma 3).
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import Reduced, Segment, Step
from compressors.core.norms import squared_norm
from compressors.kernels.choice import backend_of
from compressors.kernels.reference import step_of
from trainers.comm.communicator import Communicator

_BLOCK = 2**20  # elements whose differences are in memory at once


class Sums(NamedTuple):
    """Sums over all steps so far. ``applied`` is equal in all processes; ``gradients`` must be summed over
    them."""

    gradients: Tensor  # [D] float64, of this process's workers; the first process also has earlier totals
    applied: Tensor  # [D] float64
    workers: Tensor  # [1] float64, n at the last ``settle``; 0: never
    bounds: Tensor  # [S] float64, of ||e|| per segment; like ``gradients``, of this process's workers
    rate: Tensor  # [1] float64, factor of the gradient in p; 0: no step yet; infinite: changed or unknown


class Drift:
    """Updates the sums. ``settle``, between steps, brings them into the form of a checkpoint."""

    def __init__(self, segments: list[Segment]) -> None:
        size, device = sum(segment.rows.shape[1] for segment in segments), segments[0].rows.device
        zeros = partial(torch.zeros, dtype=torch.float64, device=device)
        rate = torch.zeros(1, dtype=torch.float64)  # on the CPU, where every step reads it
        self.sums = Sums(zeros(size), zeros(size), zeros(1), zeros(len(segments)), rate)
        self._norms = zeros(len(segments))  # of this process's gradients, summed over its workers
        self._backend = backend_of(device)

    def add_gradients(self, segments: list[Segment]) -> None:
        """Add the gradients of a step, before the reduction."""
        self._backend.add_wide([segment.rows for segment in segments], self.sums.gradients)
        for place, segment in enumerate(segments):
            self._norms[place] = squared_norm(segment.rows).sqrt().sum()

    def add_applied(self, segments: list[Segment], reduced: Reduced) -> None:
        """Add the mean that the optimizer gets in the same step."""
        means = [reduced.mean[segment.name].unsqueeze(0) for segment in segments]
        self._backend.add_wide(means, self.sums.applied)

    def add_bounds(self, segments: list[Segment], reduced: Reduced, step: Step, rate: float | None) -> None:
        """Bound the residuals after the same step; ``rate`` is the factor of the gradient in p, if known."""
        before = self.sums.rate.item()
        rate = math.inf if rate is None or before not in (0, rate) else rate
        self.sums.rate.fill_(rate)
        for place, segment in enumerate(segments):
            workers, size = segment.rows.shape
            codec = reduced.compressed[segment.name].codec
            a, b = codec.norm_bound(size, step_of(step, segment)) if codec is not None else (math.inf, 0.0)
            if math.isinf(rate) or math.isinf(a):
                self.sums.bounds[place] = math.inf
            elif a == 0:
                self.sums.bounds[place] = workers * b / rate
            else:
                whole = self.sums.bounds[place] + self._norms[place]
                self.sums.bounds[place] = a * whole + workers * b / rate

    def measure(self, communicator: Communicator) -> dict[str, float]:
        """The gap, its ratio unless the gradients sum to 0, and its bound if finite; not charged."""
        self._add_up(communicator)
        apart = whole = 0.0
        for start in range(0, len(self.sums.applied), _BLOCK):
            mean = self.sums.gradients[start : start + _BLOCK] / communicator.size
            whole += squared_norm(mean).item()
            apart += squared_norm(mean.sub_(self.sums.applied[start : start + _BLOCK])).item()
        bound = (self.sums.bounds / communicator.size).square().sum().item()
        self._leave_to_first(communicator)
        known = {"diagnostics/gap_bound": bound} if math.isfinite(bound) else {}
        ratio = {"diagnostics/gap_relative": apart / whole} if whole > 0 else {}
        return {"diagnostics/gap": apart, **ratio, **known}

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
            self.sums.bounds.mul_(communicator.size / before)
        self._leave_to_first(communicator)

    def _add_up(self, communicator: Communicator) -> None:
        for sums in (self.sums.gradients, self.sums.bounds):
            sums.copy_(communicator.sum(sums))

    def _leave_to_first(self, communicator: Communicator) -> None:
        self.sums.workers.fill_(communicator.size)
        if communicator.rank > 0:
            self.sums.gradients.zero_()
            self.sums.bounds.zero_()


@dataclass(frozen=True)
class Gap:
    """||sum of G - m||^2, its ratio to ||sum of G||^2, and its bound by the gradients' norms if there is one.

    Cost: in every step two passes over the gradients and one over their mean; in a measured step an
    all-reduce of D numbers of 8 bytes; memory for 2 D such numbers in each process.
    """
