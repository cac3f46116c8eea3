"""Command that draws figures of any set of run folders.

There is a PNG for each figure, subject and setting; with --pdf also a PDF. A method's line is the mean over
its seeds. Dots are single seeds. With three seeds or more, pale bars show the 95 % interval of the mean.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from results.command import in_a_line, parser
from results.figures import description, metrics, panels, sheet
from results.figures.groups import Group, groups
from results.figures.metrics import Metric
from results.figures.panels import NothingToDraw
from results.figures.saving import add_option, save_all
from results.read.folders import compared_across, finished_runs

LAYER_HEIGHT = 0.2  # inches


def layers(group: Group, quality: Metric | None) -> Any:
    """Average density and total error of every layer."""
    drawn = panels.layered(group)
    rows = max(len(run.summary["layers"]) for runs in drawn.values() for run in runs)
    shown = [
        panels.layers(drawn, metrics.LAYER_DENSITY, named=True),
        panels.layers(drawn, metrics.LAYER_ERROR, named=False),
    ]
    height = max(2.0, 0.8 + LAYER_HEIGHT * rows)
    title = f"{group.subject}: average density and total error of every layer"
    return sheet.of_group(group, drawn, title, shown, height, share_y=True)


def _against(group: Group, y: Metric | None, x: Metric) -> Any:
    if y is None:
        raise NothingToDraw("no run has a quality")
    drawn = panels.ended(group, x.name, y.name)
    title = f"{group.subject}: {y.title} against {x.title}"
    return sheet.of_group(group, drawn, title, [description.points(drawn, x, y)])


def _curves(what: str, pairs: Sequence[tuple[Metric, Metric]], group: Group, _: Metric | None) -> Any:
    needed = {metric.name for pair in pairs for metric in pair} - {metrics.STEPS.name}
    drawn = panels.recorded(group, *sorted(needed))
    shown = [description.curves(drawn, x, y, panels.MOST_POINTS) for x, y in pairs]
    against = " and ".join(dict.fromkeys(x.title for x, _ in pairs))
    return sheet.of_group(group, drawn, f"{group.subject}: {what} against {against}", shown)


# By name. Each takes a group and the metric of its quality; values are those at the end unless said.
FIGURES: dict[str, Callable[[Group, Metric | None], Any]] = {
    "quality_density": partial(_against, x=metrics.MEAN_DENSITY),
    "quality_bytes": partial(_against, x=metrics.FINAL_BYTES),
    "total_error_bytes": lambda group, _: _against(group, metrics.FINAL_TOTAL_ERROR, metrics.FINAL_BYTES),
    "density": partial(_curves, "density", [(metrics.STEPS, metrics.DENSITY)]),  # of every step
    "error": partial(  # of every step, and total error so far
        _curves,
        "compression error",
        [(metrics.STEPS, metrics.ERROR), (metrics.STEPS, metrics.TOTAL_ERROR)],
    ),
    "layers": layers,
    "loss": partial(_curves, "training loss", [(metrics.STEPS, metrics.LOSS), (metrics.BYTES, metrics.LOSS)]),
    "suboptimality": partial(
        _curves,
        "suboptimality",
        [(metrics.BYTES, metrics.SUBOPTIMALITY), (metrics.EPOCHS, metrics.SUBOPTIMALITY)],
    ),
}


def main(arguments: list[str] | None = None) -> int:
    own = parser("figures", __doc__)
    own.add_argument("output", nargs="+", type=Path, help="folders with runs")
    own.add_argument("--to", type=Path, help="where figures go (default: OUTPUT/figures)")
    add_option(own)
    own.add_argument("--only", help=f"some of them, separated by commas: {', '.join(FIGURES)}")
    own.add_argument("--quality", help="the metric of a model's quality, such as test/accuracy")
    own.add_argument(
        "--across",
        default="",
        help="settings to compare beside the method, such as scope,workers or data.alpha",
    )
    options = own.parse_args(arguments)
    return in_a_line(lambda: write(options))


def write(options: argparse.Namespace) -> None:
    """Write the chosen figures. Raises ``OSError`` and ``ValueError`` for unreadable or unsuitable runs."""
    names = _names(options.only)
    runs = compared_across(finished_runs(options.output), options.across)
    folder = options.to or options.output[0] / "figures"
    if not save_all(figures_of(groups(runs), names, options.quality), folder, pdf=options.pdf):
        raise FileNotFoundError(f"nothing to draw in {', '.join(map(str, options.output))}")


def _names(only: str | None) -> list[str]:
    if only is None:
        return list(FIGURES)
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in FIGURES:
            raise ValueError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    return [name for name in FIGURES if name in names]


def figures_of(
    of: Sequence[Group], names: Sequence[str], quality: str | None = None
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The figures ``names`` of each group: the file name without its ending, and a function that draws it."""
    for group in of:
        judged_by = metrics.quality(group.runs, quality)
        for name in names:
            yield f"{group.stem}-{name}", partial(FIGURES[name], group, judged_by)
