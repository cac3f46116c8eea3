"""Clipping of a worker's gradient to a largest L2 norm, before compression."""

from torch import Tensor


def shrink(norm: Tensor, largest: float) -> Tensor:
    """The factor that reduces ``norm`` to ``largest``; 1 if it is below."""
    return (largest / (norm + 1e-6)).clamp(max=1.0)
