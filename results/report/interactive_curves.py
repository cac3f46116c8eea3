"""Figures of a report over the steps: means over seeds as lines, with seeds and intervals at some steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from results.compare.measures import Measure
from results.figures import description
from results.figures.metrics import STEPS, of_measure
from results.figures.style import line_styles
from results.report.axes import (
    Figure,
    axis,
    dash,
    layout,
    missing,
    noted,
    plain,
    rounded,
    seeds_of,
    symbol_of,
    title,
)
from results.report.facts import Series

MOST_POINTS = 300  # of a curve
MARKS_SHOWN = 10  # of a curve's points


def curves(series: Sequence[Series], measure: Measure) -> Figure | None:
    """A metric over the steps: the mean over seeds as a line, with single seeds and intervals at marks."""
    styles = line_styles(one.styled for one in series)
    recorded = [one for one in series if all(measure.name in run.records for run in one.runs)]
    panel = description.curves(
        {one.label: one.runs for one in recorded}, STEPS, of_measure(measure), MOST_POINTS
    )
    log = panel.y.scale.logarithmic
    lines = {line.name: line for line in panel.lines}
    data, absent = [], []
    for one in series:
        line = lines.get(one.label)
        if line is None or np.isfinite(line.y).sum() < 2:
            absent.append(one.label)
            continue
        style = styles[one.label]
        data += seeds_of(line.marks, style["color"], one.label)
        data.append(_line(line.x, line.y, one, style, measure))
    if not data:
        return None
    several = any(len(one.pages) > 1 for one in series)
    marks = [mark for line in panel.lines for mark in line.marks]
    note = "Lines: means over seeds, dots: single seeds" if several else "Lines: one seed each"
    note += ", bars: 95 % intervals of the mean" if any(mark.y_interval for mark in marks) else ""
    steps = {"title": {"text": "step"}, "type": "linear", "exponentformat": "SI", "zeroline": False}
    return Figure(
        title(measure, "steps"),
        f"{note}; at most about {MOST_POINTS} points each.{noted(panel)}" + missing(absent, log),
        data,
        layout(steps, axis(measure, log, (value for trace in data for value in trace["y"]))),
    )


def _line(
    steps: np.ndarray, mean: np.ndarray, series: Series, style: dict[str, Any], measure: Measure
) -> dict[str, Any]:
    label = plain(series.label)
    width = style["linewidth"]
    drawn = {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "legendgroup": series.label,
        "x": [int(step) for step in steps],
        "y": [rounded(value) for value in mean],
        "meta": " ".join(page.key for page in series.pages),
        "hovertemplate": f"step %{{x:,}}<br>{plain(measure.label)}: %{{y:.4g}}<extra>{label}</extra>",
        "line": {"color": style["color"], "width": width, "dash": dash(style["linestyle"], width)},
    }
    if "marker" in style:
        drawn |= {
            "mode": "lines+markers",
            "marker": {"symbol": symbol_of(style), "maxdisplayed": MARKS_SHOWN, "size": 7},
        }
    return drawn
