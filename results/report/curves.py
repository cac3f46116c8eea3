"""Figures of a report over the steps: means over seeds as lines, their 95 % intervals as bands."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from results.compare.measures import Measure
from results.figures.curves import band, interval
from results.figures.style import line_styles
from results.read.run import Run
from results.report.axes import Figure, axis, dash, is_log, layout, missing, plain, rounded, title
from results.report.facts import Series

MOST_POINTS = 300  # of a curve
MARKERS = {  # matplotlib's in plotly's words
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "^": "triangle-up",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "<": "triangle-left",
    ">": "triangle-right",
    "*": "star",
    "h": "hexagon",
    "d": "diamond-tall",
    "p": "pentagon",
    "8": "octagon",
}
MARKS_SHOWN = 10  # of a curve's points
WIDE_RANGE = 100  # largest over smallest value of a curve that is drawn on a logarithmic axis


def curves(series: Sequence[Series], measure: Measure) -> Figure | None:
    """A metric over the steps: the mean over seeds as a line, its 95 % interval as a band."""
    styles = line_styles(series)
    found = {one.label: seeds for one in series if not (seeds := _by_step(one.runs, measure)).empty}
    if not found:
        return None
    log = is_log(measure) or _spans_much(found.values())
    data, absent = [], [one.label for one in series if one.label not in found]
    is_banded = holds_zero = False
    for one in series:
        if one.label not in found:
            continue
        seeds = found[one.label]
        if log:
            seeds = seeds.where(seeds > 0)
            if not seeds.notna().to_numpy().any():
                absent.append(one.label)
                continue
        mean = seeds.mean(axis=1, skipna=False)
        low, high = band(seeds.to_numpy(), interval)
        if np.isfinite(low).any():
            is_banded = True
            holds_zero |= log and bool((low <= 0).any())
            low = np.where(low <= 0, mean, low) if log else low
            data += _band(mean.index, low, high, one, styles[one.label])
        data.append(_line(mean, one, styles[one.label], measure))
    if not data:
        return None
    several = any(len(one.pages) > 1 for one in series)
    note = "Lines: means over seeds" if several else "Lines: one seed each"
    note += ", bands: their 95 % intervals, of three seeds or more" if is_banded else ""
    note += ", from the mean up where an interval includes zero" if holds_zero else ""
    steps = {"title": {"text": "step"}, "type": "linear", "exponentformat": "SI", "zeroline": False}
    return Figure(
        title(measure, "steps"),
        f"{note}; at most {MOST_POINTS} points each." + missing(absent, log),
        data,
        layout(steps, axis(measure, log, (value for trace in data for value in trace["y"]))),
    )


def _by_step(runs: Sequence[Run], measure: Measure) -> pd.DataFrame:
    """A row per step that all seeds recorded, thinned; a column per seed."""
    columns = []
    for run in runs:
        if measure.name not in run.records or "step" not in run.records:
            return pd.DataFrame()
        curve = measure.factor * run.curve(measure.name)
        columns.append(curve[~curve.index.duplicated(keep="last")])
    table = pd.concat(columns, axis=1, join="inner").sort_index()
    if len(table) <= MOST_POINTS:
        return table if len(table) > 1 else pd.DataFrame()
    picked = sorted({round(i * (len(table) - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)})
    return table.iloc[picked]


def _line(mean: pd.Series, series: Series, style: dict[str, Any], measure: Measure) -> dict[str, Any]:
    label = plain(series.label)
    width = style["linewidth"]
    drawn = {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "legendgroup": series.label,
        "x": [int(step) for step in mean.index],
        "y": [rounded(value) for value in mean],
        "meta": " ".join(page.key for page in series.pages),
        "hovertemplate": f"step %{{x:,}}<br>{plain(measure.label)}: %{{y:.4g}}<extra>{label}</extra>",
        "line": {"color": style["color"], "width": width, "dash": dash(style["linestyle"], width)},
    }
    if "marker" in style:
        symbol = MARKERS.get(style["marker"], "circle") + "-open" * ("markerfacecolor" in style)
        drawn |= {
            "mode": "lines+markers",
            "marker": {"symbol": symbol, "maxdisplayed": MARKS_SHOWN, "size": 7},
        }
    return drawn


def _band(
    steps: pd.Index, low: np.ndarray, high: np.ndarray, series: Series, style: dict[str, Any]
) -> list[dict[str, Any]]:
    common = {"type": "scatter", "mode": "lines", "legendgroup": series.label, "showlegend": False}
    common |= {"x": [int(step) for step in steps], "hoverinfo": "skip", "line": {"width": 0}}
    colour = style["color"]
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.18)"}
    ends = [common | {"y": [rounded(value) for value in end]} for end in (high, low)]
    return [ends[0], ends[1] | fill]


def _spans_much(tables: Iterable[pd.DataFrame]) -> bool:
    values = pd.concat([pd.Series(table.to_numpy().ravel()) for table in tables])
    return bool(values.min() > 0 and values.max() / values.min() > WIDE_RANGE)
