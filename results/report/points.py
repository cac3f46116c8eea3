"""Figures of a report with a mark per run: one number of the runs against another."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from results.compare.measures import Measure
from results.figures.style import line_styles
from results.read.run import Run
from results.report.axes import Figure, axis, bare, dash, is_log, layout, missing, plain, rounded, said, title
from results.report.facts import Page, Series

SYMBOLS = {
    "none": "circle",
    "hard_threshold": "square",
    "top_k": "triangle-up",
    "random_k": "diamond",
    "random_block": "x",
}
VARIANTS = ("", "-open", "-open-dot", "-dot")  # of a method's symbol, for several families of one method
FADED = 0.6  # a run's point beside the mean of its seeds


def points(series: Sequence[Series], x: Measure, y: Measure) -> Figure | None:
    """A small mark per run, a large one per mean over seeds, a line through the means of a family."""
    families: dict[str, list[Series]] = {}
    for one in series:
        families.setdefault(one.family, []).append(one)
    styles = line_styles(replace(members[0], label=family) for family, members in families.items())
    symbols = _symbols((family, members[0].compressor) for family, members in families.items())
    data, absent = [], []
    for family, members in families.items():
        runs, means = [], []
        for one in members:
            found = [_point(page, one, x, y) for page in one.pages]
            found = [point for point in found if point is not None]
            runs += found
            if found:
                means.append(_mean(one, found, x, y))
            else:
                absent.append(one.label)
        if not runs:
            continue
        style, symbol = styles[family], symbols[family]
        means.sort(key=lambda point: (point["x"], point["y"]))
        line = {"color": style["color"], "width": 1.2, "dash": dash(style["linestyle"], 1.2)}
        data.append(
            _marks(runs, family, {"symbol": symbol, "size": 7, "color": style["color"], "opacity": FADED})
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
    note += " Click a mark to see how its run was made."
    axes = [axis(m, is_log(m), (v for t in data for v in t[k])) for m, k in ((x, "x"), (y, "y"))]
    return Figure(
        title(y, bare(x)),
        note + missing(absent, is_log(x) or is_log(y)),
        data,
        layout(*axes),
    )


def _symbols(families: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Plotly's symbol per family, from pairs (family, compressor)."""
    symbols, seen = {}, {}
    for family, compressor in families:
        variant = seen[compressor] = seen.get(compressor, -1) + 1
        symbols[family] = SYMBOLS.get(compressor, "star") + VARIANTS[variant % len(VARIANTS)]
    return symbols


def _point(page: Page, series: Series, x: Measure, y: Measure) -> dict[str, Any] | None:
    at = (_at(page.run, x), _at(page.run, y))
    for value, measure in zip(at, (x, y), strict=True):
        if value is None or not math.isfinite(value) or (is_log(measure) and value <= 0):
            return None
    words = [plain(series.label), f"seed {page.run.seed}", said(x, [page.run]), said(y, [page.run])]
    return {"x": at[0], "y": at[1], "text": "<br>".join(words), "keys": [page.key], "run": page.run}


def _mean(series: Series, found: list[dict[str, Any]], x: Measure, y: Measure) -> dict[str, Any]:
    runs = [point["run"] for point in found]
    count = f"mean of {len(runs)} seeds" if len(runs) > 1 else f"seed {runs[0].seed} only"
    words = [plain(series.label), count, said(x, runs), said(y, runs)]
    keys = [key for point in found for key in point["keys"]]
    return {
        "x": statistics.mean(point["x"] for point in found),
        "y": statistics.mean(point["y"] for point in found),
        "text": "<br>".join(words),
        "keys": keys,
    }


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


def _at(run: Run, measure: Measure) -> float | None:
    value = measure.value(run)
    return None if value is None else measure.factor * value
