"""Multilayer perceptron."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from data.checks import is_count, require_memory, require_share, shown


def mlp(
    *,
    input_shape: tuple[int, ...],
    num_classes: int,
    hidden: Sequence[int] = (256, 128),
    dropout: float = 0.0,
) -> nn.Module:
    """Linear layers of ``hidden`` widths on the flattened sample, with ReLU and dropout between them.

    Raises ``ValueError`` for a width below 1 and a dropout outside [0, 1).
    """
    is_list = isinstance(hidden, Sequence) and not isinstance(hidden, str)
    if not is_list or not all(map(is_count, hidden)):
        raise ValueError(f"model.hidden must be a list of integers >= 1, got {shown(hidden)}")
    require_share("model.dropout", dropout)
    layers: list[nn.Module] = [nn.Flatten()]
    width_before = math.prod(input_shape)
    widths = (width_before, *hidden, num_classes)
    require_memory("model.hidden", hidden, 8 * sum(map(math.prod, pairwise(widths))))
    for width in hidden:
        layers += [nn.Linear(width_before, width), nn.ReLU(), nn.Dropout(dropout)]
        width_before = width
    return nn.Sequential(*layers, nn.Linear(width_before, num_classes))
