"""Axes, escaped text and dashes shared by a report's plotly figures."""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from results.compare.measures import LINK_BYTES, Measure
from results.figures.description import Mark, Panel
from results.read.run import Run

BYTES, DENSITY = LINK_BYTES, "compression/density_mean"
TOTAL_ERROR = "compression/total_error"
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
FEW_DECADES, MOST_POWERS = 2.5, 8  # of a logarithmic axis


@dataclass(frozen=True)
class Figure:
    """One figure: what plotly draws, and the words around it."""

    title: str
    note: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]


def plain(text: str) -> str:
    """Text that plotly shows as it is: neither as its pseudo-HTML nor as a template."""
    return html.escape(text, quote=False).replace("{", "&#123;")


def rounded(value: float) -> float | None:
    """Five significant digits keep the page small; what is no number is a gap."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def said(measure: Measure, runs: Sequence[Run]) -> str:
    """A number with its name, for what appears under the pointer."""
    return f"{plain(measure.label)}: {measure.spread(runs)}"


def axis(measure: Measure, log: bool, values: Iterable[float | None]) -> dict[str, Any]:
    """An axis for these values; None among them is a gap."""
    drawn = {"title": {"text": plain(measure.label)}, "zeroline": False, "exponentformat": "power"}
    if not log:
        return drawn | {"type": "linear"}
    values = [value for value in values if value is not None]
    decades = math.log10(max(values)) - math.log10(min(values)) if values else 0
    if decades > 1:  # left alone, plotly numbers more ticks than a narrow figure has room for
        drawn["dtick"] = "D2" if decades < FEW_DECADES else math.ceil(decades / MOST_POWERS)
    return drawn | {"type": "log"}


def layout(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    """What the page does not decide by its width and colours."""
    return {"xaxis": x, "yaxis": y, "hovermode": "closest"}


def dash(style: Any, width: float) -> str:
    """Matplotlib's line style in plotly's words: a dash pattern counts in line widths there."""
    if isinstance(style, str):
        return style
    return ",".join(f"{length * width:g}px" for length in style[1])


def symbol_of(style: dict[str, Any]) -> str:
    """Matplotlib's marker in plotly's words."""
    return MARKERS.get(style["marker"], "circle") + "-open" * ("markerfacecolor" in style)


def seeds_of(marks: Sequence[Mark], colour: str, group: str) -> list[dict[str, Any]]:
    """Traces of the intervals, as pale bars, and of the seeds, as dots, around marks."""
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
    """What a panel has to say of its intervals."""
    return "".join(f" {note}" for note in panel.notes)


def title(measure: Measure, against: str) -> str:
    """A figure's heading."""
    words = bare(measure)
    words = words if words.startswith("f(x)") else words[:1].upper() + words[1:]
    return f"{words} against {against}"


def bare(measure: Measure) -> str:
    """The label without its unit."""
    return measure.label.split(",")[0]


def missing(labels: Sequence[str], log: bool) -> str:
    """A sentence on series that are not in the figure, or nothing."""
    if not labels:
        return ""
    why = "not above zero on a logarithmic axis, or not recorded"
    if not log:
        why = "not recorded"
    return f" Not shown ({why}): {'; '.join(labels)}."
