"""Figures and the reproduction table of the convex experiments, from run folders.

A figure for every setting found: suboptimality, ||x - x*||^2 and mean ||e||^2, against bits and
epochs, and bits per step; one line per method, its mean over seeds, and the seeds' range as a band.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from results.figures.curves import Quantity, epochs, metric, over_seeds, positive, seed_range, steps
from results.figures.groups import file_stem, other_seeds, seeds_of, unused
from results.figures.saving import Figures
from results.figures.style import apply_style, apply_to_axis, line_styles
from results.read.matching import by_method, by_setting
from results.read.run import Run
from results.studies.convex.reproduction import reproduction_table
from results.studies.kit import Option, Study

BITS_LABELS = {
    "paper": "bits handed over per worker (32 per value, no index)",
    "ledger": "bits handed over per worker (values, indices and counts)",
}


def page(runs: Sequence[Run], bits: str) -> str:
    """Markdown: the experiments beside the paper's numbers."""
    return reproduction_table(list(runs))


def figures(runs: Sequence[Run], bits: str) -> Figures:
    """One per setting, its bits counted as the paper does or all that were handed over."""
    for stem, group in named_groups(list(runs)).items():
        yield stem, partial(draw, group, bits)


def named_groups(runs: list[Run]) -> dict[str, list[Run]]:
    """Runs of one setting, under a file name that no other setting has."""
    named: dict[str, list[Run]] = {}
    for group in by_setting(runs):
        run = group[0]
        partition = run.config["data"]["partition"]
        name = run.subject if partition in ("iid", "contiguous") else f"{run.subject}-{partition}"
        named[unused(file_stem(name), named)] = group
    return named


def draw(runs: list[Run], bits: str) -> Any:
    """Six panels for the runs of one setting."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    apply_style()
    methods = by_method(runs)
    styles = line_styles(of_method[0].identity.method for of_method in methods.values())
    others = other_seeds(methods)
    figure = Figure(figsize=(13, 7.4), layout="constrained")
    axes = figure.subplots(2, 3)
    to_optimum, distance, error = "f(x) - f*", "||x - x*||²", "mean ||e||² over workers"
    panels = (
        (bits_so_far(bits), BITS_LABELS[bits], "convex/suboptimality", to_optimum),
        (epochs, "epochs", "convex/suboptimality", to_optimum),
        (epochs, "epochs", "compression/error", error),
        (bits_so_far(bits), BITS_LABELS[bits], "convex/distance_squared", distance),
        (epochs, "epochs", "convex/distance_squared", distance),
        (steps, "steps", bits, "bits handed over per worker and step"),
    )
    for axis, (abscissa, x_label, name, y_label) in zip(axes.flat, panels, strict=True):
        ordinate = positive(bits_per_step(name) if name in BITS_LABELS else metric(name))
        for method, of_method in methods.items():
            curve, style = over_seeds(of_method, abscissa, ordinate, seed_range), styles[method]
            axis.plot(curve.x, curve.mean, **style, label=method + others[method])
            if np.isfinite(curve.low).any():
                axis.fill_between(
                    curve.x, curve.low, curve.high, color=style["color"], alpha=0.2, linewidth=0
                )
        axis.set(xlabel=x_label, ylabel=y_label, yscale="log")
        if abscissa not in (epochs, steps):
            axis.set_xscale("log")
        else:
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        apply_to_axis(axis)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False, handlelength=4
    )
    figure.suptitle(title(runs, methods))
    return figure


def title(runs: list[Run], methods: dict[str, list[Run]]) -> str:
    """What was run, and over which seeds the lines are means."""
    config = runs[0].config
    batch = config["trainer"]["batch_size"]
    algorithm = "EF-GD" if batch is None else "EF-SGD"
    star = "*" if config["model"].get("shift") else ""
    samples = "" if batch is None else f"{batch} row{'s' * (batch > 1)} per worker and step, "
    split = config["data"]["partition"]
    alpha = f" (alpha {config['data']['alpha']:g})" if split == "dirichlet" else ""
    return (
        f"{config['data'].get('name', '')}: {algorithm}{star}, {config['workers']} workers, {samples}"
        f"{split} shards{alpha}; {seeds_of(methods, 'range')}"
    )


def bits_so_far(kind: str) -> Quantity:
    """Bits a worker has handed over by each record, in either way of counting."""

    def of(run: Run) -> pd.Series:
        if kind == "paper":
            return run.curve("comm/paper_bits_total")
        return 8 * run.curve("comm/bytes_sent_total")

    return of


def bits_per_step(kind: str) -> Quantity:
    """Bits a worker handed over per step, averaged between two records."""

    def of(run: Run) -> pd.Series:
        sent = bits_so_far(kind)(run)
        before = pd.concat([pd.Series({0: 0.0}), sent.iloc[:-1]])
        per_step = (sent.to_numpy() - before.to_numpy()) / (sent.index.to_numpy() - before.index.to_numpy())
        return pd.Series(per_step, index=sent.index)

    return of


STUDY = Study(
    name="convex",
    question="Do the paper's convex experiments come out the same here?",
    page=page,
    figures=figures,
    keeps=lambda run: "convex/suboptimality" in run.records,
    option=Option(
        name="--bits", help="as the paper counts them, or all handed over", choices=tuple(BITS_LABELS)
    ),
)
