"""Figures of a report over the steps: means over seeds as lines, their 95 % intervals as bands."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from results.compare.measures import Measure
from results.figures import description
from results.figures.metrics import STEPS, of_measure
from results.figures.style import line_styles
from results.report.axes import Figure, axis, dash, layout, missing, plain, rounded, symbol_of, title
from results.report.facts import Series

MOST_POINTS = 300  # of a curve
MARKS_SHOWN = 10  # of a curve's points


def curves(series: Sequence[Series], measure: Measure) -> Figure | None:
    """A metric over the steps: the mean over seeds as a line, its 95 % interval as a band."""
    styles = line_styles(series)
    recorded = [one for one in series if all(measure.name in run.records for run in one.runs)]
    panel = description.curves(
        {one.label: one.runs for one in recorded}, STEPS, of_measure(measure), MOST_POINTS
    )
    log = panel.y.scale.logarithmic
    data, absent = [], []
    is_banded = holds_zero = False
    for one in series:
        curve = panel.curves.get(one.label)
        mean = None if curve is None else np.where(curve.mean > 0, curve.mean, np.nan) if log else curve.mean
        if mean is None or len(mean) < 2 or not np.isfinite(mean).any():
            absent.append(one.label)
            continue
        if np.isfinite(curve.low).any():
            is_banded = True
            holds_zero |= log and bool((curve.low <= 0).any())
            low = np.where(curve.low <= 0, mean, curve.low) if log else curve.low
            data += _band(curve.x, low, curve.high, one, styles[one.label])
        data.append(_line(curve.x, mean, one, styles[one.label], measure))
    if not data:
        return None
    several = any(len(one.pages) > 1 for one in series)
    note = "Lines: means over seeds" if several else "Lines: one seed each"
    note += ", bands: their 95 % intervals, of three seeds or more" if is_banded else ""
    note += ", from the mean up where an interval includes zero" if holds_zero else ""
    steps = {"title": {"text": "step"}, "type": "linear", "exponentformat": "SI", "zeroline": False}
    return Figure(
        title(measure, "steps"),
        f"{note}; at most about {MOST_POINTS} points each." + missing(absent, log),
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


def _band(
    steps: np.ndarray, low: np.ndarray, high: np.ndarray, series: Series, style: dict[str, Any]
) -> list[dict[str, Any]]:
    common = {"type": "scatter", "mode": "lines", "legendgroup": series.label, "showlegend": False}
    common |= {"x": [int(step) for step in steps], "hoverinfo": "skip", "line": {"width": 0}}
    colour = style["color"]
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.18)"}
    ends = [common | {"y": [rounded(value) for value in end]} for end in (high, low)]
    return [ends[0], ends[1] | fill]
