"""Least squares in float64, without intercept.

    f(x) = (1 / 2m) sum_j (a_j.x - b_j)^2 + (l2 / 2) ||x||^2

L = sigma_max(A)^2 / m, step size 1 / (L + l2). The minimum solves the normal equations; a second Newton
step corrects its rounding errors. Labels y_j are targets as well: rows c_j = -y_j a_j have the product -1
where a_j.x = y_j.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from torch import Tensor

from data.checks import require_count
from models.convex.kept_optimum import as_numpy
from models.convex.optimum import largest_singular_value
from models.convex.problem import Constants, ConvexProblem, check_settings

_MOST_FEATURES = 6000  # the normal equations are factorised


class SquaredLoss:
    """(c.x - b)^2 / 2; b is -1 for rows c = -y a of labels."""

    is_squared = True

    def targets(self, targets: Tensor | None, count: int) -> np.ndarray:
        return np.full(count, -1.0) if targets is None else targets.cpu().numpy()

    def losses(self, products: Tensor, targets: Tensor | None) -> Tensor:
        return self.slopes(products, targets).square_().div_(2)

    def slopes(self, products: Tensor, targets: Tensor | None) -> Tensor:
        return products - (-1.0 if targets is None else targets)


def least_squares(
    *,
    problem: Any,
    name: str,
    cache: Path,
    l2: float | None = 0.0,
    offset: float | None = None,
    shift: bool = False,
) -> ConvexProblem:
    """The problem on all rows of the data. ``l2=None`` means L / 10000; ``cache`` is not needed.

    The run starts at x* + ``offset``, or at 0 if ``offset`` is None. Raises ``ValueError`` for invalid
    settings, for more than 6,000 features, and for a problem without a unique minimum.
    """
    check_settings(l2, offset, shift)
    rows, weights = as_numpy(problem.features), as_numpy(problem.weights)
    require_count("the number of features for model=least_squares", rows.shape[1], 1, _MOST_FEATURES)
    smoothness = float(largest_singular_value(rows)) ** 2 / len(weights)
    if not 0 < smoothness < np.inf:
        raise ValueError(f"the features of {name} are all zero or too large: L is {smoothness}")
    strength = smoothness / 10000 if l2 is None else float(l2)
    loss = SquaredLoss()
    targets = loss.targets(problem.targets, len(weights))
    x = _minimum(rows, weights, targets, strength)
    value = float(weights @ (rows @ x - targets) ** 2 / 2 + strength / 2 * (x @ x))
    return ConvexProblem(problem, loss, Constants(smoothness, strength, x, value), offset=offset, shift=shift)


def _minimum(rows: Any, weights: np.ndarray, targets: np.ndarray, l2: float) -> np.ndarray:
    """x* [D]. Raises ``ValueError`` if the Hessian is singular in float64."""
    hessian = rows.T @ (
        rows.multiply(weights[:, None]) if hasattr(rows, "multiply") else weights[:, None] * rows
    )
    hessian = hessian.toarray() if hasattr(hessian, "toarray") else hessian
    hessian[np.diag_indices(len(hessian))] += l2
    message = (
        "least squares has no unique minimum: the features are linearly dependent, and "
        f"model.l2={l2:g} is too small"
    )
    if np.linalg.cond(hessian) > 1e14:
        raise ValueError(message)
    try:
        factor = cho_factor(hessian)
    except LinAlgError as error:
        raise ValueError(message) from error
    x = np.zeros(len(hessian))
    for _ in range(2):
        x -= cho_solve(factor, rows.T @ (weights * (rows @ x - targets)) + l2 * x)
    return x
