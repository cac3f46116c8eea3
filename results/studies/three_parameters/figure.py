"""One picture of the study of three key parameters: quality, total error, bytes and time against density."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from results.compare.measures import Measure
from results.compare.statistics import mean_and_interval
from results.figures.groups import seeds_in_words
from results.figures.scales import scale_of, set_scale
from results.figures.style import LINE_WIDTH, apply_style, apply_to_axis, colour, dash
from results.read.run import Run
from results.studies.three_parameters.combinations import SCHEMES, Network

SCOPES = {"layer": "per layer", "global": "the whole model at once"}
PREFIX = "three_parameters_"  # of what the runs are called
APART = 1.035  # factor between the places of two lines at one density, so that no interval hides another
WIDTH, HEIGHT = 3.4, 2.35  # inches, of a panel
MARKERS = {"random_k": "o", "random_block": "s", "top_k": "^"}


def draw(networks: Sequence[Network]) -> Any:
    """A column per network and scope; a row for quality with feedback, without it, and for each cost."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    apply_style()
    columns = [(network, scope) for network in networks for scope in SCOPES]
    rows = ("quality", "lost", "error", "bytes", "time")
    figure = Figure(figsize=(WIDTH * len(columns), HEIGHT * len(rows) + 1.2), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for number, (network, scope) in enumerate(columns):
        for axis, row in zip(axes[:, number], rows, strict=True):
            label, measure, feedback = _row(network, row)
            _panel(axis, network, scope, feedback, measure, limit=100 if "accuracy" in label else None)
            axis.set_xscale("log")
            axis.set_xticks([100 * density for density in network.densities])
            axis.set_xticklabels([f"{100 * density:g}" for density in network.densities])
            axis.xaxis.set_minor_locator(NullLocator())
            apply_to_axis(axis)
            if scope == next(iter(SCOPES)):
                axis.set_ylabel(label)
        axes[0, number].set_title(f"{network.subject.removeprefix(PREFIX)},\n{SCOPES[scope]}")
        axes[-1, number].set_xlabel("density, %")
    lines = {line.get_label(): line for axis in axes.flat for line in axis.get_legend_handles_labels()[0]}
    figure.legend(
        list(lines.values()),
        list(lines),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        handlelength=4,
    )
    seeds = sorted({seed for network in networks for seed in network.plain})
    said = seeds_in_words(seeds, "95 % interval")
    figure.suptitle(f"Scheme, coordinates, scope and feedback beside plain SGD,\n{said}")
    return figure


def _row(network: Network, row: str) -> tuple[str, Measure, str]:
    """What stands at the axis, what is drawn, and of which combinations."""
    if row in ("quality", "lost"):
        feedback, how = ("on", "with feedback") if row == "quality" else ("off", "without feedback")
        better = "lower" if network.quality.name.endswith("/loss") else "higher"
        return f"{network.quality.label}\n{how} ({better} is better)", network.quality, feedback
    said, measure = {
        "error": ("total error", network.total_error),
        "bytes": ("MB that left a worker", network.megabytes),
        "time": ("compression and\ncommunication, ms a step", network.reduce),
    }[row]
    return f"{said}\nwith feedback", measure, "on"


def _panel(
    axis: Any, network: Network, scope: str, feedback: str, measure: Measure, limit: float | None
) -> None:
    """A line per scheme and coordinates over densities; plain SGD across, unless its value is 0."""
    every = [
        _mean_and_half(measure, runs.values())
        for combination, runs in network.combinations.items()
        if combination.feedback == feedback
    ]
    plain = _mean_and_half(measure, network.plain.values())
    if plain is not None and plain[0] > 0:  # its total error is 0
        every.append(plain)
    mean, half = np.array([pair for pair in every if pair is not None]).reshape(-1, 2).T
    intervals = [mean], [mean - half], [mean + half]
    set_scale(axis, "y", scale_of(*intervals, can_be_logarithmic=limit is None, limit=limit))
    kinds = dict.fromkeys(
        (combination.scheme, combination.coordinates) for combination in network.combinations
    )
    for place, (scheme, coordinates) in enumerate(kinds):
        combinations = [
            combination
            for combination in network.combinations
            if combination[:4] == (scheme, coordinates, scope, feedback)
            and _mean_and_half(measure, network.combinations[combination].values()) is not None
        ]
        if not combinations:
            continue
        found = np.array(
            [
                _mean_and_half(measure, network.combinations[combination].values())
                for combination in combinations
            ]
        )
        shift = APART ** (place - (len(kinds) - 1) / 2)
        is_hollow = coordinates == "own" and scheme != "top_k"
        axis.errorbar(
            [100 * combination.density * shift for combination in combinations],
            found[:, 0],
            yerr=np.where(found[:, 1] > 0, found[:, 1], np.nan),
            label=_label(scheme, coordinates),
            color=colour(scheme),
            linestyle=dash(scheme),
            linewidth=LINE_WIDTH,
            elinewidth=1,
            capsize=2,
            marker=MARKERS[scheme],
            markersize=5,
            markerfacecolor="white" if is_hollow else None,
        )
    if plain is not None and plain[0] > 0:
        style = {"color": colour("none"), "linewidth": LINE_WIDTH}
        axis.axhline(plain[0], **style, linestyle=dash("none"), label="plain SGD")
        axis.axhspan(plain[0] - plain[1], plain[0] + plain[1], color=colour("none"), alpha=0.12, linewidth=0)


def _label(scheme: str, coordinates: str) -> str:
    return SCHEMES[scheme] if scheme == "top_k" else f"{SCHEMES[scheme]}, {coordinates} coordinates"


def _mean_and_half(measure: Measure, runs: Sequence[Run]) -> tuple[float, float] | None:
    """In the unit of the table; a half width of 0 where seeds tell none, None for no value."""
    values = [measure.factor * value for value in measure.values(list(runs))]
    if not values:
        return None
    mean, half = mean_and_interval(values)
    return mean, 0.0 if half is None or not np.isfinite(half) else half
