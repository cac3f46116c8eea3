"""Drawing of panels by matplotlib, and selection of the runs with the metrics of a panel."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from results.figures import description
from results.figures.description import Axis, Mark, Methods, Panel, is_number
from results.figures.groups import Group
from results.figures.metrics import Metric
from results.figures.scales import NARROW_X_ROOM, X_ROOM, set_scale
from results.read.run import Run

MOST_POINTS = 600  # of a curve
BAR_ALPHA, BAR_WIDTH = 0.25, 4.5  # opacity of an interval's bar; its width in points
LAYERS = Metric("layer", "layer", can_be_logarithmic=False)


class NothingToDraw(Exception):
    """No run has the metrics of the figure."""


def recorded(group: Group, *metrics: str) -> Methods:
    """The runs with all metrics in their records. Raises ``NothingToDraw`` if there is none."""
    return _having(group, lambda run, name: name in run.records and len(run.curve(name)) > 0, metrics)


def ended(group: Group, *metrics: str) -> Methods:
    """The runs with all metrics in their summary. Raises ``NothingToDraw`` if there is none."""
    return _having(group, lambda run, name: is_number(run.summary.get(name)), metrics)


def layered(group: Group) -> Methods:
    """The runs with metrics of their layers.

    Raises ``NothingToDraw`` if there is none, or if the model has one layer, whose values are the totals.
    """
    drawn = _having(group, lambda run, name: bool(run.summary.get(name)), ("layers",))
    if all(len(run.summary["layers"]) < 2 for runs in drawn.values() for run in runs):
        raise NothingToDraw("the model has a single layer, whose numbers are the totals")
    return drawn


def draw(axis: Any, panel: Panel, styles: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw a panel on matplotlib's ``axis``."""
    from matplotlib.ticker import NullLocator

    set_scale(axis, "x", panel.x.scale, NARROW_X_ROOM if panel.has_rows else X_ROOM)
    set_scale(axis, "y", panel.y.scale)
    for side, which in ((panel.x, "x"), (panel.y, "y")):
        if side.places:
            getattr(axis, f"set_{which}ticks")(*zip(*side.places, strict=True))
            getattr(axis, f"{which}axis").set_minor_locator(NullLocator())
    axis.set(xlabel=panel.x.label, ylabel=panel.y.label)
    axis.set_title(panel.title, fontsize=9)
    mark_of = {line.name: line.marks[0] for line in panel.lines if line.marks}
    for names in panel.joined:
        style = styles[names[len(names) // 2]]
        at = [[getattr(mark_of[name], which) for name in names] for which in ("x", "y")]
        kept = {key: style[key] for key in ("color", "linestyle")}
        axis.plot(*at, **kept, linewidth=1.2, zorder=1.5, label="_")
    for name, height in panel.across:  # baselines
        style = styles[name]
        kept = {key: style[key] for key in ("color", "linestyle")}
        axis.axhline(height, **kept, linewidth=1.0, zorder=1, label="_")
    for line in panel.lines:
        style = {**styles[line.name], **({"linestyle": "none"} if panel.has_rows else {})}
        axis.plot(line.x, line.y, **style, markevery=list(line.marked), label=line.name)
        for mark in line.marks:
            _draw_seeds(axis, mark, style["color"])


def _draw_seeds(axis: Any, mark: Mark, colour: str) -> None:
    """Seeds as dots, and intervals as pale bars behind them."""
    bar = {"color": colour, "alpha": BAR_ALPHA, "linewidth": BAR_WIDTH, "zorder": 1.4}
    if mark.y_interval is not None:
        axis.vlines(mark.x, *mark.y_interval, **bar)
    if mark.x_interval is not None:
        axis.hlines(mark.y, *mark.x_interval, **bar)
    if len(mark.seeds) > 1:
        dots = {"marker": "o", "markersize": 2.6, "markeredgewidth": 0, "linestyle": "none", "alpha": 0.7}
        axis.plot(*mark.seeds.T, color=colour, **dots, zorder=2.1, label="_")


def layers(drawn: Methods, what: Metric, *, named: bool) -> Panel:
    """A panel with a row per layer, in the order of the model: per method the mean of ``what`` and its seeds.

    ``named``: with the layers' names on the left.
    """
    elements = {
        name: layer["elements"]
        for runs in drawn.values()
        for name, layer in runs[0].summary["layers"].items()
    }
    seeds: dict[str, list[np.ndarray]] = {}
    for method, runs in drawn.items():
        seeds[method] = []
        for row, name in enumerate(elements):
            values = [run.summary["layers"].get(name, {}).get(what.name) for run in runs]
            values = [(what.factor * value, float(row)) for value in values if is_number(value)]
            seeds[method] += [np.array(values)] if values else []
    last = len(elements) - 0.5
    panel = description.through(seeds, what, LAYERS._replace(limits=(last, -0.5)))
    names = [f"{name} ({size:,})" for name, size in elements.items()]
    rows = Axis("layer (elements)" if named else "", panel.y.scale, tuple(enumerate(names)))
    notes = tuple(note for note in panel.notes if LAYERS.label not in note)
    equal = tuple(title for title in panel.equal if title != LAYERS.title)
    return replace(panel, y=rows, notes=notes, equal=equal, has_rows=True)


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
