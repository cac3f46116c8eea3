"""Interactive figures of a report, as plotly's plain dictionaries: points per run, curves over steps."""

import html
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from results.measures import Measure, costs, qualities
from results.report_facts import Page, Series
from results.runs import Run
from results.style import line_styles

BYTES, DENSITY = "comm/bytes_sent_total", "compression/density_mean"
TOTAL_ERROR = "compression/total_error"
LOGARITHMIC = {BYTES, DENSITY, TOTAL_ERROR, "compression/density", "convex/suboptimality"}
MOST_POINTS = 300  # of a curve
SYMBOLS = {
    "none": "circle",
    "hard_threshold": "square",
    "top_k": "triangle-up",
    "random_k": "diamond",
    "random_block": "x",
}
VARIANTS = ("", "-open", "-open-dot", "-dot")  # of a method's symbol, for several families of one method
FADED = 0.6  # a run's point beside the mean of its seeds
FEW_DECADES, MOST_POWERS = 2.5, 8  # of a logarithmic axis
WIDE_RANGE = 100  # largest over smallest value of a curve that is drawn on a logarithmic axis


@dataclass(frozen=True)
class Figure:
    """One figure: what plotly draws, and the words around it."""

    title: str
    note: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]


def figures_of(series: Sequence[Series]) -> list[Figure]:
    """The figures of one subject; those whose numbers no run has are left out."""
    runs = [run for one in series for run in one.runs]
    quality = next(iter(qualities(runs)), None)
    cost = {measure.name: measure for measure in costs(runs)}
    sent, density, error = (cost.get(name) for name in (BYTES, DENSITY, TOTAL_ERROR))
    drawn = [
        points(series, x, y)
        for x, y in ((sent, quality), (density, quality), (sent, error))
        if x is not None and y is not None
    ]
    measures = [_recorded("train/loss", "training loss"), _recorded("compression/density", "density, %", 100)]
    measures += [measure for measure in (error, quality) if measure is not None]
    drawn += [curves(series, measure) for measure in measures]
    return [figure for figure in drawn if figure is not None]


def points(series: Sequence[Series], x: Measure, y: Measure) -> Figure | None:
    """A small mark per run, a large one per mean over seeds, a line through the means of a family."""
    families: dict[str, list[Series]] = {}
    for one in series:
        families.setdefault(one.family, []).append(one)
    styles = line_styles((family, members[0].compressor) for family, members in families.items())
    symbols = _symbols((family, members[0].compressor) for family, members in families.items())
    data, missing = [], []
    for family, members in families.items():
        runs, means = [], []
        for one in members:
            found = [_point(page, one, x, y) for page in one.pages]
            found = [point for point in found if point is not None]
            runs += found
            if found:
                means.append(_mean(one, found, x, y))
            else:
                missing.append(one.label)
        if not runs:
            continue
        style, symbol = styles[family], symbols[family]
        means.sort(key=lambda point: (point["x"], point["y"]))
        line = {"color": style["color"], "width": 1.2, "dash": _dash(style["linestyle"], 1.2)}
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
    axes = [_axis(m, _is_log(m), (v for t in data for v in t[k])) for m, k in ((x, "x"), (y, "y"))]
    return Figure(
        f"{_bare(y)} against {_bare(x)}",
        note + _missing(missing, _is_log(x) or _is_log(y)),
        data,
        _layout(*axes),
    )


def curves(series: Sequence[Series], measure: Measure) -> Figure | None:
    """A metric over the steps: the mean over seeds as a line, their range as a band."""
    styles = line_styles((one.label, one.compressor) for one in series)
    found = {one.label: seeds for one in series if not (seeds := _by_step(one.runs, measure)).empty}
    if not found:
        return None
    log = _is_log(measure) or _spans_much(found.values())
    data, missing = [], [one.label for one in series if one.label not in found]
    for one in series:
        if one.label not in found:
            continue
        seeds = found[one.label]
        if log:
            seeds = seeds.where(seeds > 0)
            if not seeds.notna().to_numpy().any():
                missing.append(one.label)
                continue
        data += _band(seeds, one, styles[one.label]) if len(one.pages) > 1 else []
        data.append(_line(seeds.mean(axis=1, skipna=False), one, styles[one.label], measure))
    if not data:
        return None
    seeds_said = "Lines: means over seeds, bands: their range"
    note = seeds_said if any(len(one.pages) > 1 for one in series) else "Lines: one seed each"
    steps = {"title": {"text": "step"}, "type": "linear", "exponentformat": "SI", "zeroline": False}
    return Figure(
        f"{_bare(measure)} against steps",
        f"{note}; at most {MOST_POINTS} points each." + _missing(missing, log),
        data,
        _layout(steps, _axis(measure, log, (value for trace in data for value in trace["y"]))),
    )


def plain(text: str) -> str:
    """Text that plotly shows as it is: neither as its pseudo-HTML nor as a template."""
    return html.escape(text, quote=False).replace("{", "&#123;")


def rounded(value: float) -> float | None:
    """Five significant digits keep the page small; what is no number is a gap."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


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
        if value is None or not math.isfinite(value) or (_is_log(measure) and value <= 0):
            return None
    words = [plain(series.label), f"seed {page.run.seed}", _said(x, [page.run]), _said(y, [page.run])]
    return {"x": at[0], "y": at[1], "text": "<br>".join(words), "keys": [page.key], "run": page.run}


def _mean(series: Series, found: list[dict[str, Any]], x: Measure, y: Measure) -> dict[str, Any]:
    runs = [point["run"] for point in found]
    count = f"mean of {len(runs)} seeds" if len(runs) > 1 else f"seed {runs[0].seed} only"
    words = [plain(series.label), count, _said(x, runs), _said(y, runs)]
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
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "legendgroup": series.label,
        "x": [int(step) for step in mean.index],
        "y": [rounded(value) for value in mean],
        "meta": " ".join(page.key for page in series.pages),
        "hovertemplate": f"step %{{x:,}}<br>{plain(measure.label)}: %{{y:.4g}}<extra>{label}</extra>",
        "line": {"color": style["color"], "width": width, "dash": _dash(style["linestyle"], width)},
    }


def _band(seeds: pd.DataFrame, series: Series, style: dict[str, Any]) -> list[dict[str, Any]]:
    common = {"type": "scatter", "mode": "lines", "legendgroup": series.label, "showlegend": False}
    common |= {"x": [int(step) for step in seeds.index], "hoverinfo": "skip", "line": {"width": 0}}
    colour = style["color"]
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    high = common | {"y": [rounded(value) for value in seeds.max(axis=1, skipna=False)]}
    low = common | {"y": [rounded(value) for value in seeds.min(axis=1, skipna=False)]}
    return [high, low | {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.18)"}]


def _dash(style: Any, width: float) -> str:
    """Matplotlib's line style in plotly's words: a dash pattern counts in line widths there."""
    if isinstance(style, str):
        return style
    return ",".join(f"{length * width:g}px" for length in style[1])


def _layout(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    return {"xaxis": x, "yaxis": y, "hovermode": "closest"}


def _axis(measure: Measure, log: bool, values: Iterable[float | None]) -> dict[str, Any]:
    axis = {"title": {"text": plain(measure.label)}, "zeroline": False, "exponentformat": "power"}
    if not log:
        return axis | {"type": "linear"}
    values = [value for value in values if value is not None]
    decades = math.log10(max(values) / min(values))
    if decades > FEW_DECADES:  # plotly numbers 2 and 5 between the powers of ten, too, if left alone
        axis["dtick"] = math.ceil(decades / MOST_POWERS)
    return axis | {"type": "log"}


def _spans_much(tables: Iterable[pd.DataFrame]) -> bool:
    values = pd.concat([pd.Series(table.to_numpy().ravel()) for table in tables])
    return bool(values.min() > 0 and values.max() / values.min() > WIDE_RANGE)


def _missing(labels: Sequence[str], log: bool) -> str:
    if not labels:
        return ""
    why = "not above zero on a logarithmic axis, or not recorded"
    if not log:
        why = "not recorded"
    return f" Not shown ({why}): {'; '.join(labels)}."


def _recorded(name: str, label: str, factor: float = 1) -> Measure:
    """A metric that is drawn over the steps only."""
    return Measure(name, label, lambda run: run.summary.get(name), factor)


def _at(run: Run, measure: Measure) -> float | None:
    value = measure.value(run)
    return None if value is None else measure.factor * value


def _said(measure: Measure, runs: Sequence[Run]) -> str:
    return f"{plain(measure.label)}: {measure.spread(runs)}"


def _is_log(measure: Measure) -> bool:
    return measure.name in LOGARITHMIC


def _bare(measure: Measure) -> str:
    """The label without its unit."""
    return measure.label.split(",")[0]
