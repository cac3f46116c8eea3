"""The terms e and alpha g of the compressor's input p = e + alpha g in a step, for diagnostics."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from compressors.api import Input, Segment
from compressors.kernels.choice import backend_of
from trainers.comm.communicator import Communicator


@dataclass(frozen=True, kw_only=True)
class StepInput:
    """Gradients and residuals of the local workers before a reduction, and their means over all n.

    Means are computed from float64 sums over processes, not charged. Such sums of fp32 numbers are almost
    always exact, so they do not depend on the number of processes.
    """

    segments: list[Segment]  # rows [W, d] hold g
    carried: list[Input]  # p of the same segments
    communicator: Communicator

    @property
    def alpha(self) -> float:
        """Factor of g in p: the learning rate under feedback.scale=step, otherwise 1."""
        return self.carried[0].scale

    @cached_property
    def mean_gradient(self) -> list[Tensor]:
        """G, the mean of g over all n workers, per segment [d] float64."""
        return self._mean([segment.rows for segment in self.segments])

    @cached_property
    def mean_input(self) -> list[Tensor]:
        """The mean of p over all n workers, per segment [d] float64."""
        memories = [given.memory for given in self.carried if given.memory is not None]
        added = [given.segment.rows for given in self.carried]  # g, or the feedback's replacement of it
        alike = all(own is segment.rows for own, segment in zip(added, self.segments, strict=True))
        means = self.mean_gradient if alike else self._mean(added)
        if not memories:
            return [self.alpha * mean for mean in means]
        pairs = zip(self._mean(memories), means, strict=True)
        return [memory.add_(mean, alpha=self.alpha) for memory, mean in pairs]

    def _mean(self, rows: list[Tensor]) -> list[Tensor]:
        sums = [backend_of(part.device).sum_wide(part) for part in rows]
        total = self.communicator.sum(torch.cat(sums) if len(sums) > 1 else sums[0])
        return list(total.div_(self.communicator.size).split([len(each) for each in sums]))


def norm_of(parts: list[Tensor]) -> float:
    """L2 norm of all ``parts`` together, summed in float64."""
    return sum(float(part.double().square().sum()) for part in parts) ** 0.5
