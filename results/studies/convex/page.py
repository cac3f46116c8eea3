"""Figures and the reproduction table of the convex experiments, from run folders.

There is a figure for every setting: suboptimality, ||x - x*||^2 and mean ||e||^2 over bits and epochs, and
bits per step. A line is the mean of a method over its seeds.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from results.figures import sheet
from results.figures.curves import Quantity
from results.figures.description import curves
from results.figures.groups import file_stem, legend_labels, named, seeds_of, styles_of
from results.figures.metrics import EPOCHS, STEPS, Metric
from results.figures.panels import MOST_POINTS
from results.figures.saving import Figures
from results.read.matching import by_method, by_setting
from results.read.naming import common_words, unused
from results.read.run import Run
from results.studies.convex.reproduction import reproduction_table
from results.studies.kit import Option, Study

BITS_LABELS = {
    "paper": "bits handed over per worker (32 per value, no index)",
    "ledger": "bits handed over per worker (values, indices and counts)",
}
TO_OPTIMUM = Metric("convex/suboptimality", "f(x) - f*")
DISTANCE = Metric("convex/distance_squared", "||x - x*||²")
ERROR = Metric("compression/error", "mean ||e||² over workers")
HEIGHT = 2.6  # of a panel, inches


def page(runs: Sequence[Run], bits: str) -> str:
    """Markdown: our numbers beside the paper's."""
    return reproduction_table(list(runs))


def figures(runs: Sequence[Run], bits: str) -> Figures:
    """One figure per setting; bits are counted by the paper's rule or are all bits handed over."""
    for stem, group in named_groups(list(runs)).items():
        yield stem, partial(draw, group, bits)


def named_groups(runs: list[Run]) -> dict[str, list[Run]]:
    """The runs of each setting, by a unique file name."""
    named: dict[str, list[Run]] = {}
    for group in by_setting(runs):
        run = group[0]
        partition = run.config["data"]["partition"]
        name = run.subject if partition in ("iid", "contiguous") else f"{run.subject}-{partition}"
        named[unused(file_stem(name), named)] = group
    return named


def draw(runs: list[Run], bits: str) -> Any:
    """Six panels for the runs of one setting."""
    methods = named(by_method(runs))
    sent = Metric(bits, BITS_LABELS[bits], quantity=bits_so_far(bits), from_start=True)
    per_step = Metric(f"{bits} a step", "bits per worker and step", quantity=bits_per_step(bits))
    steps = STEPS._replace(label="steps")
    rows = [
        [(sent, TO_OPTIMUM), (EPOCHS, TO_OPTIMUM)],
        [(sent, DISTANCE), (EPOCHS, DISTANCE)],
        [(EPOCHS, ERROR), (steps, per_step)],
    ]
    panels = [[curves(methods, x, y, MOST_POINTS) for x, y in row] for row in rows]
    counted = {line.name for line in panels[0][0].lines}
    absent = [method for method in methods if method not in counted]
    notes = [f"Not counted in such bits: {'; '.join(absent)}."] if absent else []
    heading, facts = title(runs, methods)
    return sheet.draw(
        heading, facts, panels, styles_of(methods), legend_labels(methods), notes=notes, height=HEIGHT
    )


def title(runs: list[Run], methods: dict[str, list[Run]]) -> tuple[str, str]:
    """The title, and the facts on problem, workers, batch and seeds."""
    config = runs[0].config
    batch = config["trainer"]["batch_size"]
    algorithm = "EF-GD" if batch is None else "EF-SGD"
    star = "*" if config["model"].get("shift") else ""
    samples = "" if batch is None else f"{batch} row{'s' * (batch > 1)} per worker and step, "
    split = config["data"]["partition"]
    alpha = f" (alpha {config['data']['alpha']:g})" if split == "dirichlet" else ""
    what = f"{config['workers']} workers, {samples}{split} shards{alpha}"
    words = ", ".join([what, *common_words(methods)])
    return f"{config['data'].get('name', '')}: {algorithm}{star}", f"{words}; {seeds_of(methods)}"


def bits_so_far(kind: str) -> Quantity:
    """Bits that a worker has handed over up to each record, counted by ``kind``."""

    def of(run: Run) -> pd.Series:
        if kind == "paper":
            return run.curve("comm/paper_bits_total")
        return 8 * run.curve("comm/bytes_sent_total")

    return of


def bits_per_step(kind: str) -> Quantity:
    """Bits that a worker handed over per step, mean over the steps since the last record."""

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
