"""Axes, escaped text and dashes shared by a report's plotly figures."""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from results.compare.measures import LINK_BYTES, Measure
from results.figures.description import Mark, Panel, notes_of
from results.read.run import Run

BYTES, DENSITY = LINK_BYTES, "compression/density_mean"
TOTAL_ERROR = "compression/total_error"
MARKERS = {  # plotly's names of matplotlib's markers
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
# With fewer than FEW_DECADES decades, a logarithmic axis has ticks at 1, 2 and 5 times powers of ten; with
# more, it has about MOST_POWERS ticks at most, at powers of ten.
FEW_DECADES, MOST_POWERS = 2.5, 8


@dataclass(frozen=True)
class Figure:
    """One figure: plotly's data and layout, and its texts."""

    title: str
    note: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]


def plain(text: str) -> str:
    """Text escaped for plotly, which would interpret pseudo-HTML and templates."""
    return html.escape(text, quote=False).replace("{", "&#123;")


def rounded(value: float) -> float | None:
    """Five significant digits, which keep the page small; None for NaN and infinity."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def said(measure: Measure, runs: Sequence[Run]) -> str:
    """A number with its name, for a tooltip."""
    return f"{plain(measure.label)}: {measure.spread(runs)}"


def axis(measure: Measure, log: bool, values: Iterable[float | None]) -> dict[str, Any]:
    """An axis for these values; None is a gap, and so is a value up to 0 on a logarithmic axis."""
    drawn = {"title": {"text": plain(measure.label)}, "zeroline": False, "exponentformat": "power"}
    if not log:
        return drawn | {"type": "linear"}
    drawable = [value for value in values if value is not None and value > 0]
    decades = math.log10(max(drawable)) - math.log10(min(drawable)) if drawable else 0
    if decades > 1:  # by default plotly labels more ticks than fit in a narrow figure
        drawn["dtick"] = "D2" if decades < FEW_DECADES else math.ceil(decades / MOST_POWERS)
    return drawn | {"type": "log"}


def layout(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    """The part of plotly's layout that does not depend on the page's width and colours."""
    return {"xaxis": x, "yaxis": y, "hovermode": "closest"}


def dash(style: Any, width: float) -> str:
    """plotly's form of a matplotlib line style, whose dash pattern is in units of the line width."""
    if isinstance(style, str):
        return style
    return ",".join(f"{length * width:g}px" for length in style[1])


def symbol_of(style: dict[str, Any]) -> str:
    """plotly's name of a matplotlib marker."""
    return MARKERS.get(style["marker"], "circle") + "-open" * ("markerfacecolor" in style)


def seeds_of(marks: Sequence[Mark], colour: str, group: str) -> list[dict[str, Any]]:
    """Traces around marks: intervals as pale bars, seeds as dots."""
    common = {"type": "scatter", "legendgroup": group, "showlegend": False, "hoverinfo": "skip"}
    bars: tuple[list[float | None], list[float | None]] = [], []
    for mark in marks:
        for ends, at, along in ((mark.y_interval, mark.x, 1), (mark.x_interval, mark.y, 0)):
            if ends is not None:
                bars[along].extend([rounded(ends[0]), rounded(ends[1]), None])
                bars[1 - along].extend([rounded(at), rounded(at), None])
    dots = [(x, y) for mark in marks if len(mark.seeds) > 1 for x, y in mark.seeds.tolist()]
    traces = []
    if bars[0]:
        line = {"color": colour, "width": 6}
        traces.append(common | {"mode": "lines", "x": bars[0], "y": bars[1], "opacity": 0.25, "line": line})
    if dots:
        x, y = ([rounded(value) for value in values] for values in zip(*dots, strict=True))
        traces.append(common | {"mode": "markers", "x": x, "y": y, "marker": {"color": colour, "size": 4}})
    return traces


def noted(panel: Panel) -> str:
    """A panel's notes on its intervals."""
    return "".join(f" {note}" for note in notes_of([panel]))


def title(measure: Measure, against: str) -> str:
    """A figure's heading."""
    words = bare(measure)
    words = words if words.startswith("f(x)") else words[:1].upper() + words[1:]
    return f"{words} against {against}"


def bare(measure: Measure) -> str:
    """The label without its unit."""
    return measure.label.split(",")[0]


def missing(labels: Sequence[str], log: bool) -> str:
    """A sentence on series that are missing in the figure, or an empty text."""
    if not labels:
        return ""
    why = "not above zero on a logarithmic axis, or not recorded"
    if not log:
        why = "not recorded"
    return f" Not shown ({why}): {'; '.join(labels)}."
