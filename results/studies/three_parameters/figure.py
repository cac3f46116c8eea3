"""Figure of one network of the study of three key parameters: quality, error, bytes and time by density."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from results.compare.measures import Measure
from results.figures import sheet
from results.figures.description import Panel, through
from results.figures.groups import seeds_in_words
from results.figures.metrics import Metric, of_measure
from results.figures.style import LINE_WIDTH, colour, dash
from results.read.run import Run
from results.studies.three_parameters.combinations import SCHEMES, Network

SCOPES = {"layer": "per layer", "global": "the whole model at once"}
PREFIX = "three_parameters_"  # beginning of the runs' names
PLAIN = "plain SGD"
APART = 1.035  # factor between the positions of two lines at one density, so that intervals do not overlap
HEIGHT = 2.2  # inches, of a panel
MARKERS = {"random_k": "o", "random_block": "s", "top_k": "^"}
DENSITY = Metric("density", "density, %")
ROWS = ("quality", "lost", "error", "bytes", "time")


def draw(network: Network) -> Any:
    """A figure with a column per scope, rows for quality with and without feedback, and a row per cost."""
    rows = [[_panel(network, scope, row) for scope in SCOPES] for row in ROWS]
    kinds = dict.fromkeys((each.scheme, each.coordinates) for each in network.combinations)
    styles = {_label(*kind): _style(*kind) for kind in kinds} | {PLAIN: _plain_style()}
    title = f"{network.subject.removeprefix(PREFIX)}: scheme, coordinates, scope and feedback"
    labels = {name: name for name in styles}
    return sheet.draw(title, seeds_in_words(sorted(network.plain)), rows, styles, labels, height=HEIGHT)


def _panel(network: Network, scope: str, row: str) -> Panel:
    """A line over densities per scheme and coordinates; a horizontal line for plain SGD if it is above 0."""
    label, measure, feedback = _row(network, row)
    kinds = dict.fromkeys((each.scheme, each.coordinates) for each in network.combinations)
    seeds = {}
    for place, kind in enumerate(kinds):
        shift = APART ** (place - (len(kinds) - 1) / 2)
        found = []
        for combination, runs in network.combinations.items():
            values = _values(measure, list(runs.values()))
            if combination[:4] == (*kind, scope, feedback) and values:
                at = np.full(len(values), 100 * combination.density * shift)
                found.append(np.column_stack([at, values]))
        if found:
            seeds[_label(*kind)] = found
    plain = _values(measure, list(network.plain.values()))
    height = float(np.mean(plain)) if plain else 0.0
    return through(
        seeds,
        DENSITY,
        of_measure(measure)._replace(label=label),
        across=[(PLAIN, height)] if height > 0 else [],  # its total error is 0
        places=[(100 * density, f"{100 * density:g}") for density in network.densities],
        title=SCOPES[scope],
    )


def _row(network: Network, row: str) -> tuple[str, Measure, str]:
    """(label of the axis, measure, feedback of the combinations) of a row."""
    if row in ("quality", "lost"):
        feedback, how = ("on", "with feedback") if row == "quality" else ("off", "without feedback")
        better = "lower" if network.quality.name.endswith("/loss") else "higher"
        return f"{network.quality.label}, {how} ({better} is better)", network.quality, feedback
    said, measure = {
        "error": ("total error", network.total_error),
        "bytes": ("MB that left a worker", network.megabytes),
        "time": ("compression and communication, ms a step", network.reduce),
    }[row]
    return f"{said}, with feedback", measure, "on"


def _style(scheme: str, coordinates: str) -> dict[str, Any]:
    style = {
        "color": colour(scheme),
        "linestyle": dash(scheme),
        "linewidth": LINE_WIDTH,
        "marker": MARKERS[scheme],
        "markersize": 5,
    }
    is_hollow = coordinates == "own" and scheme != "top_k"
    return style | ({"markerfacecolor": "white"} if is_hollow else {})


def _plain_style() -> dict[str, Any]:
    return {"color": colour("none"), "linestyle": dash("none"), "linewidth": LINE_WIDTH}


def _label(scheme: str, coordinates: str) -> str:
    return SCHEMES[scheme] if scheme == "top_k" else f"{SCHEMES[scheme]}, {coordinates} coordinates"


def _values(measure: Measure, runs: Sequence[Run]) -> list[float]:
    """The values of runs, in the unit of the table."""
    return [value for each in measure.values(runs) if np.isfinite(value := measure.factor * each)]
