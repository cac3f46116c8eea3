"""Panels drawn by matplotlib: curves over seeds, marks with intervals, layers."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from results.compare.statistics import mean_and_half
from results.figures import description
from results.figures.description import (
    HOLDS_ZERO,
    Methods,
    Panel,
    is_number,
    off_the_axis,
)
from results.figures.groups import Group
from results.figures.metrics import Metric
from results.figures.scales import scale_of, set_scale
from results.read.run import Run

MOST_POINTS = 600  # of a curve
MARKERS_PER_CURVE = 6
BAND_ALPHA, FEW = 0.18, 8  # bands of more curves than these are paler


class NothingToDraw(Exception):
    """No run has what the figure is about."""


def recorded(group: Group, *metrics: str) -> Methods:
    """The runs that recorded all metrics on their way. Raises ``NothingToDraw`` when there is none."""
    return _having(group, lambda run, name: name in run.records and len(run.curve(name)) > 0, metrics)


def ended(group: Group, *metrics: str) -> Methods:
    """The runs that ended with a number for all metrics. Raises ``NothingToDraw`` when there is none."""
    return _having(group, lambda run, name: is_number(run.summary.get(name)), metrics)


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
    return draw(axis, group, drawn, description.curves(drawn, x, y, MOST_POINTS))


def points(axis: Any, group: Group, drawn: Methods, x: Metric, y: Metric) -> list[str]:
    """A point per method at the end of its runs, with 95 % intervals, and a line per compressor."""
    return draw(axis, group, drawn, description.points(drawn, x, y))


def draw(axis: Any, group: Group, drawn: Methods, panel: Panel) -> list[str]:
    """What a panel describes. Returns what has to be noted."""
    set_scale(axis, "x", panel.x.scale)
    set_scale(axis, "y", panel.y.scale)
    bottom, logarithmic = axis.get_ylim()[0], panel.y.scale.logarithmic
    alpha = BAND_ALPHA if len(panel.curves) <= FEW else BAND_ALPHA / 2
    for number, (method, curve) in enumerate(panel.curves.items()):
        style, mean = group.styles[method], _shown(curve.mean, logarithmic)
        markers = _marked(axis, curve.x, mean, number / len(panel.curves))
        axis.plot(curve.x, mean, **style, markevery=markers, label=method)
        if np.isfinite(curve.low).any():
            holds_zero = logarithmic & (curve.low <= 0)
            band = {"color": style["color"], "linewidth": 0}
            axis.fill_between(curve.x, np.where(holds_zero, mean, curve.low), curve.high, alpha=alpha, **band)
            if holds_zero.any():  # paler, since what lies below the axis is most of it
                axis.fill_between(curve.x, bottom, mean, where=holds_zero, alpha=alpha / 3, **band)
    for methods in panel.joined:
        line = [[getattr(panel.marks[method], which) for method in methods] for which in ("x", "y")]
        style = group.styles[methods[len(methods) // 2]]
        kept = {key: style[key] for key in ("color", "linestyle")}
        axis.plot(*line, **kept, linewidth=1.2, zorder=1.5, label="_")
    for method, mark in panel.marks.items():
        style = group.styles[method]
        if drawn[method][0].compressor == "none":  # what all others are held against
            axis.axhline(mark.y, color=style["color"], linestyle=style["linestyle"], linewidth=1.0, zorder=1)
        bars = {"xerr": mark.x_half or None, "yerr": mark.y_half or None}
        axis.errorbar(mark.x, mark.y, **style, **bars, elinewidth=1.2, capsize=3, label=method)
    return list(panel.notes)


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
            mean_and_half(what.factor * value for value in values if is_number(value)) for values in each
        ]
        found[method] = np.array(pairs).T  # [2, layers]
    means, halves = zip(*found.values(), strict=True)
    lows = [mean - half for mean, half in zip(means, halves, strict=True)]
    highs = [mean + half for mean, half in zip(means, halves, strict=True)]
    able = what.can_be_logarithmic
    scale = scale_of(means, lows, highs, can_be_logarithmic=able, limit=what.limit)
    set_scale(axis, "x", scale)
    logarithmic = scale.logarithmic
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


def _shown(mean: np.ndarray, logarithmic: bool) -> np.ndarray:
    return np.where(mean > 0, mean, np.nan) if logarithmic else mean
