"""Residuals between steps in CPU memory, or in bfloat16, so that a GPU has more memory for the training.

A GPU then holds the residuals of up to 25 MiB of segments, or of one larger segment, in their own dtype. More
segments are reduced in several such groups: DistributedDataParallel has a single bucket in its first step.
In bfloat16 a residual is rounded up or down at random (stochastic rounding), with probabilities that keep its
mean: g + e = C(p) + e' holds up to the rounding of e', at most one bfloat16 step, which is 0 in expectation.
Rounding to the nearest number would lose all gradients below half a step of e.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from compressors.api import (
    Communicator,
    Input,
    Reduced,
    Reducer,
    Segment,
    State,
    Step,
    Wrapper,
    backend_of,
    require,
)
from compressors.core.randomness import derive_seed
from compressors.feedback.error_feedback import ErrorFeedback
from compressors.feedback.momentum_correction import MomentumCorrection

GROUP_BYTES = 25 * 2**20  # as the buckets of DistributedDataParallel


@dataclass(frozen=True)
class StoredResidual(Wrapper):
    """Keeps the residual of ``inner``, error feedback or momentum correction, in ``memory`` between steps.

    ``"cpu"`` changes no result. With a GPU it is pinned memory; the host waits for the copy of each segment
    from the GPU. ``"bf16"`` rounds residuals in float32 and leaves others as they are; the random numbers
    follow from the step. ``Reduced`` has the residual as it is kept. Raises ``ValueError`` for another
    memory, for a reducer without a residual and, in ``init``, for bf16 without a segment in float32.
    """

    inner: Reducer
    memory: str = field(kw_only=True)

    def __post_init__(self) -> None:
        require(self.memory in ("cpu", "bf16"), "memory", "'device', 'cpu' or 'bf16'", self.memory)
        fits = isinstance(self.inner, (ErrorFeedback, MomentumCorrection))
        require(fits, "memory", "'device' without error feedback or momentum correction", self.memory)

    def init(self, segments: list[Segment]) -> State:
        state = self.inner.init(segments)
        has_wide = any(segment.rows.dtype == torch.float32 for segment in segments)
        rule = "'device' or 'cpu' for parameters without float32"
        require(self.memory == "cpu" or has_wide, "memory", rule, self.memory)
        return state._replace(residual={name: self._stored(e) for name, e in state.residual.items()})

    def carried(self, inputs: list[Input], state: State, step: Step) -> list[Input]:
        return self.inner.carried(inputs, _fetched(inputs, state), step)

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        found = Reduced({}, {given.name: state.residual[given.name] for given in inputs}, {})
        for group in _groups(inputs):
            reduced, after = self.inner.reduce(group, _fetched(group, state), step, communicator)
            for given in group:
                self._keep(
                    after.residual[given.name], found.residual[given.name], given.name, step, communicator
                )
            found.mean.update(reduced.mean)
            found.compressed.update(reduced.compressed)
            state = after._replace(residual=state.residual)
            del reduced, after  # otherwise the next group's residuals would be beside these
        return found, state

    def _keep(self, left: Tensor, stored: Tensor, name: str, step: Step, communicator: Communicator) -> None:
        """Write the residual of a step, [W, d], to its memory."""
        if stored.dtype == left.dtype:
            stored.copy_(left)  # nothing is copied if they are the same memory
            return
        for row, worker in enumerate(communicator.local_workers):
            stored[row] = rounded(left[row], derive_seed("residual", step.seed, step.number, name, worker))

    def _stored(self, residual: Tensor) -> Tensor:
        """The first residual, zeros, in its memory."""
        if self.memory == "bf16":
            return residual.bfloat16() if residual.dtype == torch.float32 else residual
        return residual.cpu().pin_memory() if residual.is_cuda else residual


def _groups(inputs: list[Input]) -> Iterator[list[Input]]:
    """Consecutive inputs of up to ``GROUP_BYTES``, or a single larger one."""
    group: list[Input] = []
    for given in inputs:
        if group and sum(own.segment.rows.nbytes for own in (*group, given)) > GROUP_BYTES:
            yield group
            group = []
        group.append(given)
    yield group


def _fetched(inputs: list[Input], state: State) -> State:
    """The state with the residuals of ``inputs`` in the dtype and on the device of the gradients."""
    found = {
        given.name: state.residual[given.name].to(
            given.segment.rows.device, given.segment.rows.dtype, non_blocking=True
        )
        for given in inputs
    }
    return state._replace(residual=found)


def rounded(x: Tensor, seed: int) -> Tensor:
    """``x`` [d] float32 rounded up or down at random to numbers of bfloat16, whose expectation is ``x``.

    NaN stays NaN.
    """
    bits = backend_of(x.device).random_bits(seed, len(x), x.device)
    bits &= 0xFFFF
    bits += x.view(torch.int32)
    bits &= -0x10000
    found = bits.view(torch.float32)
    return torch.where(x == x, found, x, out=found)  # false for NaN, and faster than isnan
