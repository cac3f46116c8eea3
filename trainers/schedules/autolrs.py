"""AutoLRS: a search for the learning rate of each stage by short trials and forecasts of their loss.

Jin, Zhou, Zhao, Zhu, Guo, Canini and Krishnamurthy, ICLR 2021, https://arxiv.org/abs/2105.10762. A stage of
tau steps has one rate. At its start a Gaussian process over the log rate proposes rates. Each is tried for
tau' steps from the same state, and its loss after tau steps is forecast. Differences from the paper's
release: the search is inside the trainer; the restored state includes workers' residuals and the ledger; the
Gaussian process models the log of the forecast, so that one diverging rate does not make the differences
between the others negligible.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compressors.core.checks import is_count, is_real, require

_GRID = 400  # candidate rates, equidistant in their logarithm
_OUTLIER = 3.0  # robust standard deviations from the smoothed curve, beyond which a loss is trimmed
_LEAST = 1e-30  # lower limit of losses and forecasts, for logarithms
_FEWEST = 5  # least number of losses for a smoothed curve


@dataclass(frozen=True, kw_only=True)
class AutoLRS:
    """Stages of ``tau`` steps, doubling up to ``tau_max``, with trials of ``trial_steps`` = tau' steps.

    tau' doubles together with tau. Trials are compared by training loss or, if they have ``validation_from``
    steps or more, by validation loss. The steps of the trials count as part of the run's length. Raises
    ``ValueError`` for an empty interval of rates, for a ``tau`` that is not a multiple of ``trial_steps``,
    and for invalid numbers.
    """

    low: float  # bounds of the learning rates
    high: float
    tau: int  # steps of the first stage
    tau_max: int  # upper limit of a stage's steps
    trial_steps: int  # tau' of the first stage
    trials: int  # rates tried per stage
    validation_from: int  # least number of a trial's steps for validation loss
    exploration: float  # standard deviations below the mean in the acquisition; more means more exploration

    def __post_init__(self) -> None:
        for name in ("low", "high", "exploration"):
            value = getattr(self, name)
            require(is_real(value) and value > 0, f"AutoLRS.{name}", "> 0", value)
        rule = f"above AutoLRS.low ({self.low})"
        require(self.high > self.low, "AutoLRS.high", rule, self.high)
        for name, minimum in (("tau", 1), ("trials", 2), ("trial_steps", _FEWEST), ("validation_from", 1)):
            value = getattr(self, name)
            require(is_count(value, minimum), f"AutoLRS.{name}", f"an integer >= {minimum}", value)
        valid = self.tau % self.trial_steps == 0
        require(valid, "AutoLRS.tau", f"a multiple of trial_steps ({self.trial_steps})", self.tau)
        valid = is_count(self.tau_max) and self.tau_max >= self.tau
        require(valid, "AutoLRS.tau_max", f"an integer >= tau ({self.tau})", self.tau_max)

    @property
    def validates(self) -> bool:
        """Whether the longest trials are compared by validation loss."""
        return self.tau_max // (self.tau // self.trial_steps) >= self.validation_from

    @property
    def least_steps(self) -> int:
        """Steps of the shortest run in which ``plan`` has trials."""
        return _FEWEST * (self.tau // self.trial_steps + self.trials)

    def plan(self, stage: int, steps_left: int) -> tuple[int, int]:
        """(steps of the stage, steps of each of its trials; 0: no trials), with ``steps_left`` in the run.

        If too few steps would remain for another stage with trials, this stage takes all remaining steps.
        """
        ratio = self.tau // self.trial_steps
        trial_steps = min(self.trial_steps * 2**stage, self.tau_max // ratio)
        room = steps_left // (ratio + self.trials)  # trial steps of a stage that uses all remaining steps
        if room < _FEWEST:
            return steps_left, 0
        trial_steps = min(trial_steps, room)
        steps = trial_steps * ratio
        left = steps_left - steps - trial_steps * self.trials
        if left < _FEWEST * (ratio + self.trials):
            steps += left
        return steps, trial_steps

    def propose(self, rates: Sequence[float], forecasts: Sequence[float], start: float | None) -> float:
        """The rate to try next, after ``rates`` led to ``forecasts``.

        The first is the candidate nearest to ``start`` or, if None, to the geometric mean of the bounds. A
        rate that diverged has an infinite forecast.
        """
        grid = np.geomspace(self.low, self.high, _GRID)
        if not rates:
            wanted = start or math.sqrt(self.low) * math.sqrt(self.high)
            return float(grid[np.abs(np.log(grid) - math.log(wanted)).argmin()])
        untried = ~np.isclose(grid[:, None], np.array(rates), atol=0).any(1)
        mean, deviation = _posterior(self._place(np.array(rates)), _finite_logs(forecasts), self._place(grid))
        bound = np.where(untried, mean - self.exploration * deviation, np.inf)
        return float(grid[bound.argmin()])

    def _place(self, rates: np.ndarray) -> np.ndarray:
        """Positions of rates in the interval, in [0, 1], by their logarithm."""
        return (np.log(rates) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))


def smooth(losses: Sequence[float]) -> np.ndarray:
    """Smoothed losses, [T] from [T]: a spline that is fitted again without outliers.

    Rising losses at the end are not trimmed, because they show a divergence.
    """
    from scipy.interpolate import make_smoothing_spline

    if len(losses) < _FEWEST:
        return np.asarray(losses, dtype=float)
    # Fitted to logarithms, because noise is proportional to the loss, which may fall by orders of magnitude
    values, steps = np.log(np.maximum(losses, _LEAST)), np.arange(len(losses))
    curve = make_smoothing_spline(steps, values)(steps)
    distance = np.abs(values - curve)
    near = distance <= _OUTLIER * 1.4826 * np.median(distance) + 1e-12 * np.abs(values).max()
    if near.all() or near.sum() < _FEWEST or _rises(values):
        return np.exp(curve)
    return np.exp(make_smoothing_spline(steps[near], values[near])(steps))


def forecast(losses: Sequence[float], steps: float) -> float:
    """Forecast of a loss >= 0, ``steps`` losses after the first: a exp(b t) + c with b < 0, c >= 0.

    Infinite if a loss is not finite; at least the last loss if they rise. For few losses it is the last
    smoothed value.
    """
    if not np.isfinite(losses).all():
        return math.inf
    values = smooth(losses)
    if len(values) < _FEWEST:
        return float(values[-1])
    from scipy.optimize import minimize_scalar

    span = len(values) - 1

    def fit(log_rate: float) -> tuple[float, float, float]:
        decay = np.exp(-math.exp(log_rate) * np.arange(len(values)) / span)
        offset, scale = _line(decay, values)
        return float(np.square((scale * decay + offset) / values - 1).sum()), offset, scale

    # Limits of b: exp(b t) falls by a factor of e^0.01 within the trial, or of e^5 within a step.
    bounds = (math.log(0.01), math.log(5.0 * span))
    found = minimize_scalar(lambda x: fit(x)[0], bounds=bounds, method="bounded")
    _, offset, scale = fit(found.x)
    expected = float(scale * math.exp(-math.exp(found.x) * steps / span) + offset)
    return max(expected, float(losses[-1])) if _rises(np.asarray(losses)) else expected


def _rises(values: np.ndarray) -> bool:
    """Whether the median of the last fifth is above that of the first."""
    fifth = -(-len(values) // 5)
    return bool(np.median(values[-fifth:]) > np.median(values[:fifth]))


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """(offset >= 0, scale) of the line with the least sum of squared relative errors."""
    ones, x = 1 / y, x / y  # offset + scale x = y, each row divided by y
    a, b, c = ones @ ones, ones @ x, x @ x
    determinant = a * c - b * b
    if determinant > 1e-12 * a * c:
        offset, scale = (
            (c * ones.sum() - b * x.sum()) / determinant,
            (a * x.sum() - b * ones.sum()) / determinant,
        )
        if offset >= 0:
            return float(offset), float(scale)
    return 0.0, float(x.sum() / c)


def _finite_logs(forecasts: Sequence[float]) -> np.ndarray:
    """Logarithms of forecasts; an infinite forecast exceeds the largest other one by their range."""
    values = np.log(np.maximum(np.array(forecasts, dtype=float), _LEAST))
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.zeros(len(values))
    return np.where(np.isfinite(values), values, finite.max() + max(1.0, np.ptp(finite)))


def _posterior(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation at ``at`` of a Gaussian process with values ``y`` at ``x``."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel

    kernel = Matern(0.2, (0.05, 2.0), nu=2.5) + WhiteKernel(1e-2, (1e-4, 0.5))
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length scale at its bound is valid
        process.fit(x[:, None], y)
    return process.predict(at[:, None], return_std=True)
