"""Contents of one panel: curves over seeds, points with intervals, layers."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from results.compare.statistics import mean_and_interval
from results.figures.curves import Quantity, interval, metric, over_seeds, smoothed, steps, window
from results.figures.groups import Group
from results.figures.metrics import MEAN_DENSITY, STEPS, Metric
from results.figures.scales import set_scale
from results.read.run import Run

Methods = dict[str, list[Run]]
MOST_POINTS = 600  # of a curve
MARKERS_PER_CURVE = 6
CUT = "An interval without a cap at its end reaches beyond the panel."
BAND_ALPHA, FEW = 0.18, 8  # bands of more curves than these are paler
HOLDS_ZERO = "An interval that reaches the lower end of a logarithmic axis includes zero."


class NothingToDraw(Exception):
    """No run has what the figure is about."""


def recorded(group: Group, *metrics: str) -> Methods:
    """The runs that recorded all metrics on their way. Raises ``NothingToDraw`` when there is none."""
    return _having(group, lambda run, name: name in run.records and len(run.curve(name)) > 0, metrics)


def ended(group: Group, *metrics: str) -> Methods:
    """The runs that ended with a number for all metrics. Raises ``NothingToDraw`` when there is none."""
    return _having(group, lambda run, name: _is_number(run.summary.get(name)), metrics)


def layered(group: Group) -> Methods:
    """The runs that say how their layers fared.

    Raises ``NothingToDraw`` when there is none, or a single layer, which the totals tell all about.
    """
    drawn = _having(group, lambda run, name: bool(run.summary.get(name)), ("layers",))
    if all(len(run.summary["layers"]) < 2 for runs in drawn.values() for run in runs):
        raise NothingToDraw("the model has a single layer, whose numbers are the totals")
    return drawn


def curves(axis: Any, group: Group, drawn: Methods, x: Metric, y: Metric) -> list[str]:
    """A line per method, the mean over seeds within its 95 % interval. Returns what has to be noted."""
    found = {
        method: over_seeds(runs, _quantity(x), _quantity(y), interval, MOST_POINTS)
        for method, runs in drawn.items()
    }
    notes = _running(drawn, y) if y.noisy else []
    every = [curve for curve in found.values() if len(curve.x)]
    set_scale(
        axis,
        "x",
        [curve.x for curve in every],
        can_be_logarithmic=x.can_be_logarithmic,
        decided_by=[curve.x[-1:] for curve in every],
    )
    logarithmic = set_scale(
        axis,
        "y",
        [curve.mean for curve in every],
        [curve.low for curve in every],
        [curve.high for curve in every],
        can_be_logarithmic=y.can_be_logarithmic,
        limit=y.limit,
    )
    bottom, alpha = axis.get_ylim()[0], BAND_ALPHA if len(found) <= FEW else BAND_ALPHA / 2
    for number, (method, curve) in enumerate(found.items()):
        style, mean = group.styles[method], _shown(curve.mean, logarithmic)
        markers = _marked(axis, curve.x, mean, number / len(found))
        axis.plot(curve.x, mean, **style, markevery=markers, label=method)
        if np.isfinite(curve.low).any():
            holds_zero = logarithmic & (curve.low <= 0)
            band = {"color": style["color"], "linewidth": 0}
            axis.fill_between(curve.x, np.where(holds_zero, mean, curve.low), curve.high, alpha=alpha, **band)
            if holds_zero.any():  # paler, since what lies below the axis is most of it
                axis.fill_between(curve.x, bottom, mean, where=holds_zero, alpha=alpha / 3, **band)
    if logarithmic:
        notes += off_the_axis(y, {method: curve.mean for method, curve in found.items()})
        if any(((curve.low <= 0) & (curve.mean > 0)).any() for curve in found.values()):
            notes.append(HOLDS_ZERO)
    return notes


def points(axis: Any, group: Group, drawn: Methods, x: Metric, y: Metric) -> list[str]:
    """A point per method at the end of its runs, with 95 % intervals, and a line per compressor."""
    notes = []
    at: dict[str, list[tuple[float, float]]] = {method: [] for method in drawn}
    for which, each in (("x", x), ("y", y)):
        for method, runs in drawn.items():
            at[method].append(_mean_and_half(each.factor * run.summary[each.name] for run in runs))
        mean, half = np.array([pairs[-1] for pairs in at.values()]).T
        options = {"can_be_logarithmic": each.can_be_logarithmic, "limit": each.limit}
        if set_scale(axis, which, [mean], [mean - half], [mean + half], **options):
            notes += off_the_axis(each, {method: np.array(pairs[-1][:1]) for method, pairs in at.items()})
            notes += [HOLDS_ZERO] if ((mean > 0) & (mean <= half)).any() else []
        else:
            low, high = getattr(axis, f"get_{which}lim")()
            notes += [CUT] if ((mean - half < low) | (mean + half > high)).any() else []
    for settings in families(drawn):
        line = [[at[method][which][0] for method in settings] for which in (0, 1)]
        style = group.styles[settings[len(settings) // 2]]
        kept = {key: style[key] for key in ("color", "linestyle")}
        axis.plot(*line, **kept, linewidth=1.2, zorder=1.5, label="_")
    for method, ((x_mean, x_half), (y_mean, y_half)) in at.items():
        style = group.styles[method]
        if drawn[method][0].compressor == "none":  # what all others are held against
            axis.axhline(y_mean, color=style["color"], linestyle=style["linestyle"], linewidth=1.0, zorder=1)
        bars = {"xerr": x_half or None, "yerr": y_half or None}
        axis.errorbar(x_mean, y_mean, **style, **bars, elinewidth=1.2, capsize=3, label=method)
    return notes


def layers(axis: Any, group: Group, drawn: Methods, what: Metric) -> list[str]:
    """A row per layer, in the order of the model; per method the mean of ``what`` with its 95 % interval."""
    elements = {
        name: layer["elements"]
        for runs in drawn.values()
        for name, layer in runs[0].summary["layers"].items()
    }
    found = {}
    for method, runs in drawn.items():
        each = [[run.summary["layers"].get(name, {}).get(what.name) for run in runs] for name in elements]
        pairs = [
            _mean_and_half(what.factor * value for value in values if _is_number(value)) for values in each
        ]
        found[method] = np.array(pairs).T  # [2, layers]
    means, halves = zip(*found.values(), strict=True)
    lows = [mean - half for mean, half in zip(means, halves, strict=True)]
    highs = [mean + half for mean, half in zip(means, halves, strict=True)]
    able = what.can_be_logarithmic
    logarithmic = set_scale(axis, "x", means, lows, highs, can_be_logarithmic=able, limit=what.limit)
    rows = np.arange(len(elements))
    for method, (mean, half) in found.items():
        style = group.styles[method] | {"linewidth": 0.8, "markersize": 4.5}
        bars = {"xerr": np.where(half > 0, half, np.nan) if half.any() else None}
        axis.errorbar(_shown(mean, logarithmic), rows, **style, **bars, elinewidth=1.0, label=method)
    axis.set_yticks(rows, [f"{name} ({size:,})" for name, size in elements.items()])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    if not logarithmic:
        return []
    holds_zero = any(((mean > 0) & (mean <= half)).any() for mean, half in found.values())
    notes = off_the_axis(what, {method: mean for method, (mean, _) in found.items()})
    return [*notes, HOLDS_ZERO] if holds_zero else notes


def families(drawn: Methods) -> list[list[str]]:
    """Methods that differ in numbers only, in the order of their average density."""

    def density(method: str) -> float:
        values = [run.summary.get(MEAN_DENSITY.name, math.nan) for run in drawn[method]]
        return sum(values) / len(values)

    found: dict[str, list[str]] = {}
    for method, runs in drawn.items():
        found.setdefault(runs[0].identity.method.family, []).append(method)
    return [sorted(methods, key=density) for methods in found.values()]


def off_the_axis(what: Metric, means: dict[str, np.ndarray]) -> list[str]:
    """A note on the methods that have nothing to show on a logarithmic axis."""
    absent = [method for method, mean in means.items() if not (mean > 0).any()]
    notes = [f"{'; '.join(absent)}: {what.title} 0, not on the logarithmic axis."] if absent else []
    if any((mean > 0).any() and (mean <= 0).any() for mean in means.values()):
        notes.append(f"Gaps are where {what.title} is 0, which the logarithmic axis does not show.")
    return notes


def _having(group: Group, has: Callable[[Run, str], bool], metrics: Iterable[str]) -> Methods:
    metrics = list(metrics)
    found = {
        method: [run for run in runs if all(has(run, name) for name in metrics)]
        for method, runs in group.methods.items()
    }
    found = {method: runs for method, runs in found.items() if runs}
    if not found:
        absent = [name for name in metrics if not any(has(run, name) for run in group.runs)]
        raise NothingToDraw(f"no run has {' and '.join(absent or metrics)}")
    return found


def _quantity(what: Metric) -> Quantity:
    if what is STEPS:
        return steps
    quantity = metric(what.name, what.factor)
    return smoothed(quantity) if what.noisy else quantity


def _running(drawn: Methods, what: Metric) -> list[str]:
    """A note on the window of the running medians, the longest of them."""
    records = max(len(run.curve(what.name)) for runs in drawn.values() for run in runs)
    if window(records) == 1:
        return []
    return [f"Curves of single steps are running medians over {window(records)} of {records:,} records."]


def _marked(axis: Any, x: np.ndarray, mean: np.ndarray, shift: float) -> list[int]:
    """Indices of points at even distances along the visible x axis, shifted by a share of a distance."""
    left, right = axis.get_xlim()
    ahead, back = (np.log, np.exp) if axis.get_xscale() == "log" else (np.positive, np.positive)
    ends = ahead(left), ahead(right)
    at = back(
        ends[0]
        + (np.arange(MARKERS_PER_CURVE) + 0.25 + shift) / (MARKERS_PER_CURVE + 1) * (ends[1] - ends[0])
    )
    drawn = np.flatnonzero(np.isfinite(mean) & np.isfinite(x) & (x >= left))
    if not len(drawn):
        return []
    nearest = {int(drawn[np.argmin(np.abs(x[drawn] - place))]) for place in at if place <= x[drawn].max()}
    return sorted(nearest or {int(drawn[-1])})


def _mean_and_half(values: Iterable[float]) -> tuple[float, float]:
    """The mean and half its interval, which is 0 where seeds tell none."""
    values = list(values)
    if not values:
        return math.nan, 0.0
    mean, half = mean_and_interval(values)
    return mean, half or 0.0


def _shown(mean: np.ndarray, logarithmic: bool) -> np.ndarray:
    return np.where(mean > 0, mean, np.nan) if logarithmic else mean


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
