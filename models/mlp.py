"""Multilayer perceptron."""

import math
from collections.abc import Sequence

from torch import nn


def mlp(
    *,
    input_shape: tuple[int, ...],
    num_classes: int,
    hidden: Sequence[int] = (256, 128),
    dropout: float = 0.0,
) -> nn.Module:
    """Linear layers of ``hidden`` widths with ReLU and dropout between, on the flattened sample.

    Raises ``ValueError`` for a width below 1 and a dropout outside [0, 1).
    """
    is_list = isinstance(hidden, Sequence) and not isinstance(hidden, str)
    if not is_list or not all(type(width) is int and width >= 1 for width in hidden):
        raise ValueError(f"model.hidden must be a list of integers >= 1, got {hidden!r}")
    if not (isinstance(dropout, (int, float)) and 0 <= dropout < 1):
        raise ValueError(f"model.dropout must be in [0, 1), got {dropout!r}")
    layers: list[nn.Module] = [nn.Flatten()]
    width_before = math.prod(input_shape)
    for width in hidden:
        layers += [nn.Linear(width_before, width), nn.ReLU(), nn.Dropout(dropout)]
        width_before = width
    return nn.Sequential(*layers, nn.Linear(width_before, num_classes))
