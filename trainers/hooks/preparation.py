"""Preparation of a worker's gradient before compression: unscaling, a check, clipping."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from compressors.core.checks import is_real, require
from trainers.comm.communicator import Communicator
from trainers.step.gradients import shrink


@runtime_checkable
class Scaler(Protocol):
    """The methods of ``torch.amp.GradScaler`` that compression uses."""

    def get_scale(self) -> float: ...

    def is_enabled(self) -> bool: ...


@dataclass(frozen=True)
class Preparation:
    """Unscaling by ``scaler`` and clipping to the L2 norm ``clip_norm``, each if it is given.

    Both need the whole gradient of a step before its first element is compressed. Raises ``ValueError`` for a
    scaler without the needed methods, and for a norm that is not a number > 0.
    """

    scaler: Scaler | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        known = self.scaler is None or isinstance(self.scaler, Scaler)
        require(known, "CompressionState.scaler", "a torch.amp.GradScaler", type(self.scaler).__name__)
        norm = self.clip_norm
        fits = norm is None or (is_real(norm) and norm > 0)
        require(fits, "CompressionState.clip_norm", "above 0", norm)

    @property
    def has_scaler(self) -> bool:
        """Whether a scaler skips updates by gradients that are not finite; one that is disabled does not."""
        return self.scaler is not None and self.scaler.is_enabled()

    @property
    def needs_whole_gradient(self) -> bool:
        return self.clip_norm is not None or self.has_scaler

    def begin(self, buffers: Sequence[Tensor], gradients: list[Tensor], communicator: Communicator) -> bool:
        """Unscale and clip the gradients, views of ``buffers``; False if any worker's gradient is not finite.

        Then all gradients become infinite on all workers, so every worker's scaler skips its update.
        """
        scale = self._scale()
        if scale != 1.0:
            torch._foreach_mul_(list(buffers), 1.0 / scale)
        norm = torch.nn.utils.get_total_norm([_precise(gradient) for gradient in gradients])
        bad = not norm.isfinite() and not all(gradient.isfinite().all() for gradient in gradients)
        if communicator.all_reduce_max(int(bad)):
            for buffer in buffers:
                buffer.fill_(torch.inf)
            return False
        if self.clip_norm is not None:
            if not norm.isfinite():  # the sum of squares overflowed: in float64 it does not
                norm = torch.nn.utils.get_total_norm([gradient.double() for gradient in gradients])
            torch._foreach_mul_(list(buffers), shrink(norm, self.clip_norm).item())
        return True

    def end(self, buffers: Sequence[Tensor]) -> None:
        """Scale the means again, as the scaler expects them."""
        scale = self._scale()
        if scale != 1.0:
            torch._foreach_mul_(list(buffers), scale)

    def _scale(self) -> float:
        return 1.0 if self.scaler is None or not self.scaler.is_enabled() else self.scaler.get_scale()


def _precise(gradient: Tensor) -> Tensor:
    """The gradient with at least the precision of float32: a norm in half precision has three digits."""
    return gradient.float() if gradient.dtype.itemsize < 4 else gradient
