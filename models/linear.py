"""Multinomial logistic regression."""

import math

from torch import nn


def logistic_regression(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """One linear layer from the flattened sample to a logit per class, starting at zero."""
    layer = nn.Linear(math.prod(input_shape), num_classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)
