"""The error of a method on a Gaussian vector, and the refusal of error feedback where it exceeds the vector.

This is for methods without a useful bound for every vector: that of a quantiser is far above its error on
gradients, and there is none for values that were selected by magnitude.
"""

from typing import TYPE_CHECKING

import torch

from compressors.core.norms import squared_norm
from compressors.core.segments import Step

if TYPE_CHECKING:
    from compressors.core.codec import Codec, Plan

SIZE = 8192  # entries; the error relative to the norm varies by about a hundredth from draw to draw


def gaussian_error(codec: "Codec") -> float:
    """||x - C(x)||^2 / ||x||^2 for one vector x of independent standard normal entries; 1 for C(x) = 0.

    The weights, for methods that read them, are 1: of the order of the entries, so that most are visible.
    """
    x = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))
    rest = x.clone()
    codec.encode(rest, Step(0, 0, segment="check", shapes=((SIZE,),), weights=(torch.ones(SIZE),)))
    return (squared_norm(rest) / squared_norm(x)).item()


def refuse_growth(codec: "Codec", plan: "Plan", name: str) -> None:
    """Raise ``ValueError`` under feedback that needs a contraction if ``gaussian_error`` exceeds 1."""
    if plan.needs_contraction and (error := gaussian_error(codec)) > 1:
        raise ValueError(
            f"feedback must be none, got {plan.feedback}: {name} has an error of {error:.3g} ||x||^2 on a "
            "Gaussian vector x, so residuals would grow"
        )
