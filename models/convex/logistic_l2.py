"""l2-regularised logistic regression on labels of -1 and +1, in float64, without intercept.

    f(x) = (1/m) sum_j log(1 + exp(-y_j a_j.x)) + (l2 / 2) ||x||^2

The convex problem of Sahu et al., 2021, https://arxiv.org/abs/2108.00951: L = sigma_max(A)^2 / (4 m),
l2 = L / 10000, step size 1 / (L + l2), start at x* + a constant. The data give rows c_j = -y_j a_j, so
that a row's loss is softplus(c_j.x) and its gradient sigmoid(c_j.x) c_j.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import expit
from torch import Tensor

from models.convex.kept_optimum import known_optimum
from models.convex.problem import ConvexProblem, check_settings


class LogisticLoss:
    """log(1 + exp(c.x)) of rows c = -y a."""

    is_squared = False

    def targets(self, targets: Tensor | None, count: int) -> np.ndarray:
        return np.empty(0)

    def losses(self, products: Tensor, targets: Tensor | None) -> Tensor:
        return _softplus(products)

    def slopes(self, products: Tensor, targets: Tensor | None) -> Tensor:
        return _sigmoid(products)


# torch computes the last few entries of a vector with another formula than the others, so an entry's bits
# would depend on the number of workers in the vector. The loops of scipy and numpy treat all entries alike.


def _sigmoid(products: Tensor) -> Tensor:
    if products.device.type != "cpu":
        return torch.sigmoid(products)
    return torch.from_numpy(expit(products.numpy()))


def _softplus(products: Tensor) -> Tensor:
    if products.device.type != "cpu":
        return F.softplus(products)
    with np.errstate(invalid="ignore"):  # the check of the gradient finds a NaN
        return torch.from_numpy(np.logaddexp(0, products.numpy()))


def logistic_l2(
    *,
    problem: Any,
    name: str,
    cache: Path,
    l2: float | None = None,
    offset: float | None = None,
    shift: bool = False,
) -> ConvexProblem:
    """The problem on all rows of the data, with L and x* computed or read from ``cache``.

    ``l2=None`` means L / 10000. The run starts at x* + ``offset``, or at 0 if ``offset`` is None. Raises
    ``ValueError`` for invalid settings, for rows with targets instead of labels, for a problem without a
    unique minimum, and for rows with a known name and another L.
    """
    check_settings(l2, offset, shift)
    if problem.targets is not None:
        raise ValueError(f"model=logistic_l2 needs labels, and data={name} has targets: model=least_squares")
    found = known_optimum(problem, name, cache, l2)
    return ConvexProblem(problem, LogisticLoss(), found, offset=offset, shift=shift)
