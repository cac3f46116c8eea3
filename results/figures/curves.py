"""Quantities of a run by step, and of several seeds."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from results.read.run import Run

Quantity = Callable[[Run], pd.Series]  # values of one run, indexed by step
SMOOTHED_SHARE = 0.04  # window of a running median, as a share of the records


@dataclass(frozen=True)
class Curve:
    """A quantity of several seeds, and its mean."""

    x: np.ndarray  # [points]
    mean: np.ndarray  # [points]
    seeds: np.ndarray  # [points, seeds]


def metric(name: str, factor: float = 1.0) -> Quantity:
    """A recorded metric, times ``factor``."""
    return lambda run: run.curve(name) * factor


def epochs(run: Run) -> pd.Series:
    return run.curve("epoch")


def steps(run: Run) -> pd.Series:
    taken = pd.Index(run.records["step"].unique(), name="step")
    return taken.to_series()


def smoothed(quantity: Quantity) -> Quantity:
    """The quantity's running median over ``window`` records around each record; at both ends over fewer.

    The window has as many records before as after a record, so a curve that only rises or only falls does
    not change, and the first and last values are the recorded ones.
    """

    def of(run: Run) -> pd.Series:
        series = quantity(run)
        values, half = series.to_numpy(dtype=float), window(len(series)) // 2
        found = series.rolling(2 * half + 1, center=True).median().to_numpy().copy()
        for reach in range(min(half, len(values))):
            found[reach] = np.median(values[: 2 * reach + 1])
            found[-1 - reach] = np.median(values[-1 - 2 * reach :])
        return pd.Series(found, index=series.index)

    return of


def window(number: int) -> int:
    """The window of a running median over ``number`` records, an odd number."""
    return 2 * round(SMOOTHED_SHARE * number / 2) + 1


def over_seeds(runs: Iterable[Run], x: Quantity, y: Quantity, most: int | None = None) -> Curve:
    """``y`` over ``x`` at the steps that all runs recorded, at most about ``most`` points.

    If a run has a gap, the mean also has a gap there.
    """
    runs = list(runs)
    of_x, of_y = [x(run) for run in runs], [y(run) for run in runs]
    common = of_x[0].index
    for series in (*of_x, *of_y):
        if not series.index.equals(common):
            common = common.intersection(series.index)
    xs, ys = _at(common, of_x).mean(axis=0), _at(common, of_y)
    mean = ys.mean(axis=0)
    kept = thinned(mean, most) if most else slice(None)
    return Curve(xs[kept], mean[kept], ys.T[kept])


def _at(steps: pd.Index, series: Iterable[pd.Series]) -> np.ndarray:
    """The values at ``steps``, [seeds, points]."""
    found = (each if each.index.equals(steps) else each.loc[steps] for each in series)
    return np.array([each.to_numpy(dtype=float) for each in found])


def thinned(values: np.ndarray, most: int) -> np.ndarray:
    """Indices of at most about ``most`` of the values, whose line looks the same.

    The values are divided into intervals of equal length, and shorter ones at the beginning, which is wide on
    a logarithmic axis. The smallest and largest value of every interval are kept, so no peak is lost.
    """
    number = len(values)
    if number <= most:
        return np.arange(number)
    edges = np.linspace(0, number, most // 4 + 1).astype(int)
    early = np.geomspace(1, number, most // 4 + 1).astype(int)
    edges = np.union1d(edges, early)
    comparable = np.nan_to_num(values, nan=np.inf)
    kept = {0, number - 1}
    for start, stop in itertools.pairwise(edges):
        kept.add(start + int(np.argmin(comparable[start:stop])))
        kept.add(start + int(np.argmax(np.nan_to_num(values[start:stop], nan=-np.inf))))
    return np.array(sorted(kept))
