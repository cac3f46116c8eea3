"""The minimum of l2-regularised logistic regression, to the precision of float64.

    f(x) = sum_j w_j log(1 + exp(c_j.x)) + (l2 / 2) ||x||^2,   c_j = -y_j a_j

scipy's L-BFGS gives an approximation; Newton steps continue until the gradient is rounding noise. L-BFGS
alone cannot reach it: its line search compares values of f, whose differences vanish when the error of x is
about sqrt(eps).
"""

import math
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpocon
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg, eigsh
from scipy.special import expit

TOLERANCE = 1e-12  # bound on ||grad f|| / L
_DIRECT = 6000  # up to this many features the Hessian is factorised; above, conjugate gradients
_NEWTON_STEPS = 100


def largest_singular_value(features: Any) -> float:
    """sigma_max of a dense or CSR matrix [m, D], to about 1e-14 relative, the same in every run."""
    rows, columns = features.shape
    if not (features.count_nonzero() if hasattr(features, "count_nonzero") else np.any(features)):
        return 0.0  # ARPACK fails on a zero matrix
    if min(rows, columns) <= 10:
        dense = features.toarray() if hasattr(features, "toarray") else np.asarray(features)
        return float(np.linalg.norm(dense, 2))
    gram = LinearOperator((columns, columns), matvec=lambda v: features.T @ (features @ v), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(columns)  # ARPACK's default start is random
    (largest,) = eigsh(gram, k=1, which="LA", v0=start, tol=0, return_eigenvectors=False)
    return float(np.sqrt(largest))


class LogisticObjective:
    """f, its gradient and its Hessian in NumPy, for ``rows`` c [m, D], dense or CSR."""

    def __init__(self, rows: Any, weights: np.ndarray, l2: float) -> None:
        self.rows, self.weights, self.l2 = rows, weights, l2

    def value(self, x: np.ndarray) -> float:
        losses = np.logaddexp(0, self.rows @ x)
        return float(self.weights @ losses + self.l2 / 2 * (x @ x))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.rows.T @ (self.weights * expit(self.rows @ x)) + self.l2 * x

    def curvatures(self, x: np.ndarray) -> np.ndarray:
        """Second derivatives of the weighted losses [m] by c_j.x."""
        products = self.rows @ x
        return self.weights * expit(products) * expit(-products)


def is_optimum(objective: LogisticObjective, x: np.ndarray, smoothness: float) -> bool:
    """Whether ||grad f(x)|| <= 1e-12 L, in units of the features in which L is about 1."""
    wanted = TOLERANCE * smoothness / _unit(smoothness)
    return bool(np.linalg.norm(objective.gradient(x)) <= wanted)


def minimise(objective: LogisticObjective, smoothness: float) -> np.ndarray:
    """x* [D] to the precision of float64, at least that of ``is_optimum``; ``smoothness`` is L.

    Raises ``ValueError`` if no unique minimum is found because l2 is 0 or too small. Then the rows are
    separable (no minimum exists), or the features are linearly dependent (it is not unique).
    """
    unit = _unit(smoothness)
    scaled = LogisticObjective(objective.rows / unit, objective.weights, objective.l2 / unit**2)
    return _minimise_scaled(scaled, smoothness / unit**2, objective.l2) / unit


def _unit(smoothness: float) -> float:
    """A power of two near sqrt(L). Dividing features by it is exact and makes L about 1."""
    return 2.0 ** round(math.log2(smoothness) / 2)


def _minimise_scaled(objective: LogisticObjective, smoothness: float, l2: float) -> np.ndarray:
    """x* [D] for features whose L is about 1; ``l2`` is the unscaled value, for errors."""
    wanted = TOLERANCE * smoothness
    near = minimize(
        objective.value,
        np.zeros(objective.rows.shape[1]),
        jac=objective.gradient,
        method="L-BFGS-B",
        options={"maxiter": 500, "gtol": 1e-8 * smoothness, "ftol": 0},
    )
    x, gradient = near.x, objective.gradient(near.x)
    for _ in range(_NEWTON_STEPS):
        step = _newton_step(objective, x, gradient, l2)
        moved = np.abs(objective.rows @ step).max()  # largest change of a row's c.x
        norm = np.linalg.norm(gradient)
        if norm <= wanted and moved > 1e-3:
            raise _undecided(l2)  # the gradient is about 0, but x still moves: it would diverge
        candidate, after = _damped(objective, x, step)
        if norm <= wanted and np.linalg.norm(after) >= norm:
            return x  # the rest is rounding error
        x, gradient = candidate, after
    if np.linalg.norm(gradient) <= wanted:
        return x
    raise ValueError(
        f"the logistic regression was not minimised in {_NEWTON_STEPS} Newton steps: ||grad f|| is "
        f"{np.linalg.norm(gradient) / smoothness:.3g} L, not {TOLERANCE:g} L; model.l2={l2:g} is too small"
    )


def _damped(objective: LogisticObjective, x: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first of x + step, x + step / 2, ... at which f does not increase, and the gradient there."""
    allowed = objective.value(x) * (1 + 1e-14)  # rounding error of f near the minimum
    for halvings in range(30):
        candidate = x + step / 2**halvings
        if objective.value(candidate) <= allowed:
            break
    return candidate, objective.gradient(candidate)


def _newton_step(
    objective: LogisticObjective, x: np.ndarray, gradient: np.ndarray, users_l2: float
) -> np.ndarray:
    """The step - H^-1 g, [D]. Raises ``ValueError`` if the Hessian H is singular in float64."""
    rows, l2, curvatures = objective.rows, objective.l2, objective.curvatures(x)
    size = len(x)
    if size > _DIRECT and l2 == 0:
        raise ValueError(
            "the uniqueness of the minimum of the logistic regression cannot be checked for more than "
            f"{_DIRECT} features with model.l2=0"
        )
    if size > _DIRECT:
        product = LinearOperator((size, size), matvec=lambda v: rows.T @ (curvatures * (rows @ v)) + l2 * v)
        step, failure = cg(product, -gradient, rtol=1e-10, maxiter=20 * size)
        if failure:
            raise _undecided(users_l2)
        return step
    if hasattr(rows, "toarray"):
        hessian = (rows.T @ rows.multiply(curvatures[:, None])).toarray()
    else:
        hessian = rows.T @ (curvatures[:, None] * rows)
    hessian[np.diag_indices(size)] += l2
    norm = np.abs(hessian).sum(0).max()
    try:
        factor, is_lower = cho_factor(hessian)
    except LinAlgError as error:
        raise _undecided(users_l2) from error
    reciprocal_condition, _ = dpocon(factor, norm, uplo="L" if is_lower else "U")
    if reciprocal_condition < size * np.finfo(np.float64).eps:
        raise _undecided(users_l2)
    return cho_solve((factor, is_lower), -gradient)


def _undecided(l2: float) -> ValueError:
    return ValueError(
        "the logistic regression has no unique minimum: the rows are separable or the features are "
        f"linearly dependent, and model.l2={l2:g} is too small"
    )
