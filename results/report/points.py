"""Scatter figures of a report, with a mark per run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from results.compare.measures import Measure
from results.figures import description
from results.figures.description import is_number
from results.figures.metrics import of_measure
from results.figures.style import line_styles
from results.read.run import Run
from results.report.axes import (
    Figure,
    axis,
    bare,
    dash,
    layout,
    missing,
    noted,
    plain,
    rounded,
    said,
    seeds_of,
    symbol_of,
    title,
)
from results.report.facts import Page, Series

NO_SEEDS = np.empty((0, 2))  # no dots for seeds: each run has its own mark, with a link
FADED = 0.6  # opacity of a run's mark; a mean has 1


def points(series: Sequence[Series], x: Measure, y: Measure) -> Figure | None:
    """A small mark per run, a large one per mean over seeds, a line through the means of a family."""
    families: dict[str, list[Series]] = {}
    for one in series:
        families.setdefault(one.family, []).append(one)
    styles = line_styles(
        (members[0].styled._replace(label=family) for family, members in families.items()), marked=True
    )
    runs = {one.label: [run for run in one.runs if _has(run, x, y)] for one in series}
    methods = {label: found for label, found in runs.items() if found}
    if not methods:
        return None
    panel = description.points(methods, of_measure(x), of_measure(y), [])
    mark_of = {line.name: line.marks[0] for line in panel.lines}
    log = tuple(side.scale.logarithmic for side in (panel.x, panel.y))
    data, absent = [], []
    for family, members in families.items():
        small, means = [], []
        for one in members:
            own = [page for page in one.pages if _has(page.run, x, y)]
            found = [_point(page, one, x, y) for page in own]
            found = [point for point in found if _is_shown(point, log)]
            if found:
                mark = mark_of[one.label]
                means.append(_mean(one, found, x, y) | {"x": mark.x, "y": mark.y})
            else:
                absent.append(one.label)
            small += found
        if not small:
            continue
        style, symbol = styles[family], symbol_of(styles[family])
        means.sort(key=lambda point: (point["x"], point["y"]))
        bars = [replace(mark_of[one.label], seeds=NO_SEEDS) for one in members if one.label in mark_of]
        data += seeds_of(bars, style["color"], family)
        line = {"color": style["color"], "width": 1.2, "dash": dash(style["linestyle"], 1.2)}
        data.append(
            _marks(small, family, {"symbol": symbol, "size": 7, "color": style["color"], "opacity": FADED})
            | {"mode": "markers", "showlegend": False}
        )
        bold = {"symbol": symbol, "size": 12, "color": style["color"], "line": {"width": 1.5}}
        data.append(
            _marks(means, family, bold)
            | {"mode": "lines+markers" if len(means) > 1 else "markers", "line": line}
        )
    if not data:
        return None
    several = any(len(one.pages) > 1 for one in series)
    note = "Large marks: means over seeds; small marks: single runs." if several else "One run per mark."
    if any(mark.x_interval or mark.y_interval for mark in mark_of.values()):
        note += " Bars: 95 % intervals of the means."
    note += noted(panel) + " Click a mark to see how its run was made."
    axes = [
        axis(measure, is_log, (value for trace in data for value in trace[key]))
        for measure, is_log, key in zip((x, y), log, "xy", strict=True)
    ]
    return Figure(
        title(y, bare(x)),
        note + missing(absent, any(log)),
        data,
        layout(*axes),
    )


def _has(run: Run, *measures: Measure) -> bool:
    return all(is_number(run.summary.get(measure.name)) for measure in measures)


def _is_shown(point: dict[str, Any], log: tuple[bool, ...]) -> bool:
    return all(point[key] > 0 or not is_log for key, is_log in zip("xy", log, strict=True))


def _point(page: Page, series: Series, x: Measure, y: Measure) -> dict[str, Any]:
    at = [measure.factor * page.run.summary[measure.name] for measure in (x, y)]
    words = [plain(series.label), f"seed {page.run.seed}", said(x, [page.run]), said(y, [page.run])]
    return {"x": at[0], "y": at[1], "text": "<br>".join(words), "keys": [page.key], "run": page.run}


def _mean(series: Series, found: list[dict[str, Any]], x: Measure, y: Measure) -> dict[str, Any]:
    runs = [point["run"] for point in found]
    count = f"mean of {len(runs)} seeds" if len(runs) > 1 else f"seed {runs[0].seed} only"
    words = [plain(series.label), count, said(x, runs), said(y, runs)]
    keys = [key for point in found for key in point["keys"]]
    return {"text": "<br>".join(words), "keys": keys}


def _marks(found: list[dict[str, Any]], family: str, marker: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": plain(family),
        "legendgroup": family,
        "x": [rounded(point["x"]) for point in found],
        "y": [rounded(point["y"]) for point in found],
        "hovertext": [point["text"] for point in found],
        "hoverinfo": "text",
        "customdata": [" ".join(point["keys"]) for point in found],
        "marker": marker,
    }
