"""ACCORDION beside a hard threshold with lambda from k_low, Top-k at k_low and at k_high, and dense SGD.

    python -m results.accordion OUTPUT [OUTPUT ...] [--table FILE] [--figures DIR]

Runs of `make accordion` as a Markdown table and a figure. The comparison is that of Sahu et al., 2021,
https://arxiv.org/abs/2108.00951; the method that of Agarwal et al., 2021, https://arxiv.org/abs/2010.16248.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from results import header
from results.command import hand_out, in_a_line
from results.compare.measures import LINK_BYTES, Measure, costs, num_parameters, qualities
from results.compare.statistics import WITHOUT_INTERVAL, mean_and_interval
from results.escaping import in_markdown, markdown_table
from results.figures.curves import epochs, metric, over_seeds, seed_range, smoothed
from results.figures.groups import file_stem, seeds_in_words
from results.figures.style import COLOURS, DASHES, LINE_WIDTH, apply_style, save
from results.read.folders import finished_runs
from results.read.matching import by_key, by_setting, warnings
from results.read.run import Run
from results.studies.three_parameters.combinations import paired

ORDER = ("none", "top_k", "hard_threshold", "accordion")
MARKERS = {"none": "X", "top_k": "^", "hard_threshold": "s", "accordion": "o"}
DENSITY = "compression/density"
INTRODUCTION = """# ACCORDION and the hard threshold, every row

Written by `python -m results.accordion` from the runs of `make accordion`; what they say is in
[accordion.md](accordion.md). Quality is that of the last weights, mean ± standard deviation over the seeds
named; differences are ACCORDION's value minus the row's, paired over seeds, in brackets Student's 95 %
interval. Bytes are those of the whole training, indices and counts included: that left a worker, were each a
machine of its own, and that it handed to collectives. "At k_high": how much of the training layers were at
k_high, mean over elements.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m results.accordion", description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="+", type=Path, help="folders with runs of experiment=accordion/...")
    parser.add_argument("--table", type=Path, help="write the table here instead of printing it")
    parser.add_argument("--figures", type=Path, help="where figures go (default: OUTPUT/figures)")
    header.add_option(parser)
    options = parser.parse_args(arguments)
    return in_a_line(lambda: compare(options))


def compare(options: argparse.Namespace) -> None:
    """Write what was asked for. Raises ``OSError`` and ``ValueError`` as its parts do."""
    runs = finished_runs(options.output, needs=(LINK_BYTES,))
    studies = [methods_of(group) for group in by_setting(runs)]
    made = header.of_runs(runs, "make accordion", allow_modified=options.allow_modified)
    hand_out(header.under_title(page(runs, studies), made), options.table)
    folder = options.figures or options.output[0] / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for study in studies:
        print(*save(draw(study), folder / file_stem(_subject(study))), sep="\n")


Study = dict[str, dict[int, Run]]  # by label, by seed


def methods_of(runs: Sequence[Run]) -> Study:
    """Runs by what they are called here, by seed.

    Raises ``ValueError`` for another method, and without ACCORDION in one setting.
    """
    strangers = sorted({run.compressor for run in runs} - set(ORDER))
    if strangers:
        raise ValueError(f"runs must be of {', '.join(ORDER)}, got {', '.join(strangers)}")
    found = by_key(sorted(runs, key=lambda run: (ORDER.index(run.compressor), _level(run))), label_of)
    named = [runs for runs in found.values() if _first(runs).compressor == "accordion"]
    if len(named) != 1:
        raise ValueError(
            f"runs of {runs[0].subject} must include compressor=accordion in one setting, got {len(named)}"
        )
    return found


def label_of(run: Run) -> str:
    """The method with the densities that it was given, in per cent."""
    settings = run.config["compressor"]
    if run.compressor == "none":
        return "dense SGD"
    if run.compressor == "accordion":
        return f"ACCORDION, {100 * settings['k_low']:g} % or {100 * settings['k_high']:g} %"
    if run.compressor == "top_k":
        return f"Top-k, {100 * settings['density']:g} %"
    if settings["threshold"] is not None:
        return f"hard threshold {settings['threshold']:g}"
    return f"hard threshold, lambda from {100 * settings['density']:g} %"


def page(runs: Sequence[Run], studies: Sequence[Study]) -> str:
    """Markdown: a table per study, then notes."""
    parts = [INTRODUCTION]
    for study in studies:
        every = [run for of_seed in study.values() for run in of_seed.values()]
        measures = [*qualities(every)[:1], *costs(every)]
        ours = next(of_seed for of_seed in study.values() if _first(of_seed).compressor == "accordion")
        head = ["method", "seeds", *(measure.label for measure in measures), "at k_high, %"]
        head += [f"ACCORDION minus it: {measure.label}" for measure in measures[:2]]
        rows = [
            [*_cells(label, of_seed, measures), *_beside(ours, of_seed, measures[:2])]
            for label, of_seed in study.items()
        ]
        first = every[0]
        facts = f"{first.config['workers']} workers of {first.config['trainer']['batch_size']} samples, "
        facts += f"{num_parameters(first):,} parameters, {first.summary['step']:,} steps."
        table = markdown_table(head, rows, ["---", "---", *["---:"] * (len(head) - 2)])
        parts.append("\n".join([f"## {in_markdown(_subject(study))}", "", in_markdown(facts), "", table]))
    codes = sorted({run.code for run in runs})
    notes = [f"{len(runs)} runs of version {', '.join(codes)} of the code (*: modified)", *warnings(runs)]
    notes.append(WITHOUT_INTERVAL)
    parts.append("\n".join(["## Notes", "", *(f"- {in_markdown(note)}" for note in notes), ""]))
    return "\n".join(parts)


def share_at_high(run: Run) -> float | None:
    """How much of the training layers were at k_high, mean over elements; None for other methods.

    From the elements that each layer sent: so many at k_low, so many at k_high. A layer that sends one
    element at either says nothing and is left out.
    """
    if run.compressor != "accordion":
        return None
    low, high = (run.config["compressor"][key] for key in ("k_low", "k_high"))
    weighted, elements = 0.0, 0
    for layer in run.summary["layers"].values():
        size, sent = layer["elements"], layer["density_mean"] * layer["elements"]
        least, most = (max(1, int(density * size + 1e-9)) for density in (low, high))
        if most > least:
            weighted += size * (sent - least) / (most - least)
            elements += size
    return weighted / elements if elements else None


def draw(study: Study) -> Any:
    """Quality against average density, and the density sent over the epochs."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    apply_style()
    figure = Figure(figsize=(6.4, 6.8), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    every = [run for of_seed in study.values() for run in of_seed.values()]
    quality, density = qualities(every)[0], costs(every)[0]
    seen: list[str] = []
    for label, of_seed in study.items():
        compressor = _first(of_seed).compressor
        _add(upper, lower, label, list(of_seed.values()), (density, quality), again=compressor in seen)
        seen.append(compressor)
    upper.set_xscale("log")
    lower.set_yscale("log")
    for scale in (upper.xaxis, lower.yaxis):
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    upper.set_xlabel("average density, %")
    upper.set_ylabel(quality.label)
    lower.set_xlabel("epoch")
    lower.set_ylabel("density of a step, %")
    lower.set_ylim(bottom=1e-3)
    lower.set_title("running median of the steps; mean over seeds, and range of three or more", fontsize=9)
    for axis in (upper, lower):
        axis.grid(alpha=0.3, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = upper.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    seeds = sorted({seed for of_seed in study.values() for seed in of_seed})
    upper.set_title(f"{_subject(study)}: {seeds_in_words(seeds, '95 % interval')}")
    return figure


def _add(
    upper: Any, lower: Any, label: str, runs: list[Run], measures: tuple[Measure, Measure], *, again: bool
) -> None:
    """A method's point and line; a compressor's second setting is hollow and thin."""
    compressor = runs[0].compressor
    colour = COLOURS[compressor]
    (x, x_half), (y, y_half) = (_point(measure, runs) for measure in measures)
    upper.errorbar(
        x,
        y,
        xerr=min(x_half, 0.9 * x) or None,  # the axis is logarithmic
        yerr=y_half or None,
        label=label,
        color=colour,
        marker=MARKERS[compressor],
        markersize=7,
        markerfacecolor="white" if again else None,
        linestyle="none",
        elinewidth=1,
        capsize=3,
    )
    curve = over_seeds(runs, epochs, smoothed(metric(DENSITY, 100.0)), seed_range)
    width = LINE_WIDTH * (0.6 if again else 1)
    lower.plot(curve.x, curve.mean, color=colour, linestyle=DASHES[compressor], linewidth=width)
    low = np.maximum(curve.low, 1e-9)
    lower.fill_between(curve.x, low, curve.high, color=colour, alpha=0.15, linewidth=0)


def _cells(label: str, of_seed: dict[int, Run], measures: Sequence[Measure]) -> list[str]:
    runs = list(of_seed.values())
    at_high = Measure("at_high", "at k_high, %", share_at_high, 100, 1)
    return [label, ", ".join(map(str, of_seed)), *(measure.spread(runs) for measure in (*measures, at_high))]


def _beside(ours: dict[int, Run], theirs: dict[int, Run], measures: Sequence[Measure]) -> list[str]:
    """ACCORDION minus the row, paired over seeds."""
    if ours is theirs:
        return ["-"] * len(measures)
    found = [(measure, paired(measure, ours, theirs)) for measure in measures]
    return [measure.difference(*values) if values else "-" for measure, values in found]


def _point(measure: Measure, runs: Sequence[Run]) -> tuple[float, float]:
    mean, half = mean_and_interval([measure.factor * value for value in measure.values(runs)])
    return mean, half or 0.0


def _level(run: Run) -> float:
    return run.config["compressor"].get("density") or 0.0


def _first(of_seed: dict[int, Run]) -> Run:
    return next(iter(of_seed.values()))


def _subject(study: Study) -> str:
    return _first(next(iter(study.values()))).subject


if __name__ == "__main__":
    sys.exit(main())
