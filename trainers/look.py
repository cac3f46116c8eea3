"""What a step is about to compress, as diagnostics look at it: p = e + alpha g, not formed yet."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from compressors.api import Segment
from compressors.kernels.choice import kernels_for
from trainers.communicator import Communicator


@dataclass(frozen=True, kw_only=True)
class Look:
    """Gradients and residuals of the local workers before a reduction, and their means over all n.

    Means are float64 sums over processes that nobody is charged for. Such a sum of fp32 numbers is all but
    always exact, so that it does not depend on how many processes share the workers.
    """

    segments: list[Segment]  # rows [W, d] hold g
    residual: dict[str, Tensor] | None  # e, [W, d] per segment; None without error feedback
    alpha: float  # the learning rate under feedback.scale=step, else 1
    communicator: Communicator
    kernels: str  # which change no result

    @cached_property
    def mean_gradient(self) -> list[Tensor]:
        """G, the mean of g over all n workers, per segment [d] float64."""
        return self._mean(lambda segment: segment.rows)

    @cached_property
    def mean_input(self) -> list[Tensor]:
        """The mean of p over all n workers, per segment [d] float64."""
        if self.residual is None:
            return [self.alpha * mean for mean in self.mean_gradient]
        residuals = self._mean(lambda segment: self.residual[segment.name])
        pairs = zip(residuals, self.mean_gradient, strict=True)
        return [residual.add_(gradient, alpha=self.alpha) for residual, gradient in pairs]

    def input_of(self, segment: Segment, row: int) -> Tensor:
        """A local worker's p for one segment, [d]."""
        scaled = segment.rows[row] * self.alpha
        return scaled if self.residual is None else scaled.add_(self.residual[segment.name][row])

    def _mean(self, rows_of: Callable[[Segment], Tensor]) -> list[Tensor]:
        sums = [self._sum(rows_of(segment)) for segment in self.segments]
        total = self.communicator.sum(torch.cat(sums) if len(sums) > 1 else sums[0])
        return list(total.div_(self.communicator.size).split([len(each) for each in sums]))

    def _sum(self, rows: Tensor) -> Tensor:
        """[W, d] to [d] float64; row by row it takes a sixth of the time of torch 2.13's own sum on a CPU."""
        compiled = kernels_for(self.kernels, rows.device.type)
        if compiled is not None and compiled.can_sum(rows):
            return compiled.sum_wide(rows)
        first, *others = rows
        total = first.to(torch.float64, copy=True)
        for row in others:
            total += row
        return total


def add_wide(parts: list[Tensor], total: Tensor, kernels: str) -> None:
    """Add the rows of every part [W, d], one after the other, to the next d of ``total`` [D] float64."""
    compiled = kernels_for(kernels, total.device.type)
    if compiled is not None and all(map(compiled.can_sum, parts)):
        compiled.add_wide(parts, total)
        return
    for rows, own in zip(parts, total.split([rows.shape[1] for rows in parts]), strict=True):
        for row in rows:
            own += row


def norm_of(parts: list[Tensor]) -> float:
    """L2 norm of all ``parts`` together, summed in float64."""
    return sum(float(part.double().square().sum()) for part in parts) ** 0.5
