"""Figures and table of the convergence of Top-k, from runs with diagnostics.

For each subject there are four figures: xi, and the ratio of the error to its bound, over training; the
selection error of the mean gradient over K; the loss for every K; and the waiting times of entries, for Top-k
and a hard threshold of equal bytes. Values are means over seeds with 95 % intervals.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from results.compare.statistics import WITHOUT_INTERVAL, counted, standard_deviation
from results.escaping import in_markdown
from results.figures import description, sheet
from results.figures.description import Methods, Panel
from results.figures.groups import Group, groups, legend_labels
from results.figures.metrics import BYTES, LOSS, STEPS, Metric, quality
from results.figures.panels import MOST_POINTS, NothingToDraw, recorded
from results.figures.saving import Figures
from results.read.run import Run
from results.studies.kit import Study, table

OF_BOUND = "derived/error_of_bound"  # compression/error over diagnostics/error_bound of the same step
SELECTION, WAITED, MASS = (
    f"diagnostics/{part}_" for part in ("selection_error", "waited", "residual_unsent")
)
XI = Metric("diagnostics/xi", "xi = ||C(mean p) - mean C(p)|| / ||alpha G||", short="xi")
SHARE = Metric(OF_BOUND, "compression error of a step over its bound", limit=1.0, short="error over bound")
ENTRIES = Metric("k", "K, entries")
LEFT_OUT = Metric("left_out", "||G - TopK(G)|| / ||G||, mean over training", limits=(0.0, 1.02))
AGE = Metric("age", "x, steps")
SHARES = {
    WAITED: Metric(WAITED, "share of sent entries that waited x or more", limits=(-0.02, 1.02)),
    MASS: Metric(MASS, "share of the residual's norm² unsent for x or more", limits=(-0.02, 1.02)),
}
LONG = 30  # least waiting time in the table, in steps
INTRODUCTION = """# The convergence of Top-k: all rows

Written by `python -m results study topk_convergence` from the runs of `make topk_convergence`. Numbers are
mean ± standard deviation over seeds. xi: median and largest value over a run's measured steps. Error over
bound: mean over measured steps. Residual unsent: at the end of training, the share of the residual's squared
norm in entries that were not sent for {long} steps or more. Longest: the largest number of steps since an
entry was sent. Bytes are those that would leave a worker if each worker had its own machine, with indices and
counts.
"""


def xi(group: Group) -> Any:
    """xi, and the ratio of the error to its bound, over training."""
    group = only(group, "top_k", "hard_threshold")
    drawn = recorded(group, XI.name, OF_BOUND)
    panels = [description.curves(drawn, STEPS, what, MOST_POINTS) for what in (XI, SHARE)]
    return sheet.of_group(group, drawn, f"{group.subject}: xi, and the error over its bound", panels)


def selection(group: Group) -> Any:
    """||G - TopK(G)|| / ||G|| against K, mean over training."""
    group = only(group, "none", "top_k")
    drawn = recorded(group, numbers(group.runs, SELECTION)[0][0])
    panel = _selection(group, drawn)
    return sheet.of_group(group, drawn, f"{group.subject}: selection error of the mean gradient", [panel])


def convergence(group: Group) -> Any:
    """The training loss for every K."""
    group = only(group, "none", "top_k")
    drawn = recorded(group, LOSS.name)
    panel = description.curves(drawn, STEPS, LOSS, MOST_POINTS)
    return sheet.of_group(group, drawn, f"{group.subject}: convergence against K", [panel])


def staleness(group: Group) -> Any:
    """Shares of sent entries and of the residual that have waited at least a number of steps."""
    group = only(group, "top_k", "hard_threshold")
    drawn = recorded(group, numbers(group.runs, MASS)[0][0])
    panels = [_ages(group, drawn, prefix) for prefix in (WAITED, MASS)]
    title = f"{group.subject}: waiting times of entries, second half of training"
    return sheet.of_group(group, drawn, title, panels)


FIGURES: dict[str, Callable[[Group], Any]] = {f.__name__: f for f in (xi, selection, convergence, staleness)}


def only(group: Group, *compressors: str) -> Group:
    """The group with only the runs of these methods."""
    kept = {m: runs for m, runs in group.methods.items() if runs[0].compressor in compressors}
    return replace(group, methods=kept)


def equal_bytes(group: Group) -> list[str]:
    """A note on the pairs of thresholds and densities with about equal bytes."""
    sent = {m: np.mean([run.summary[BYTES.name] for run in runs]) for m, runs in group.methods.items()}
    if not all(sent.values()):  # nothing leaves a single worker
        return []
    kinds = {m: runs[0].compressor for m, runs in group.methods.items()}
    shown = legend_labels(group.methods)
    pairs = []
    for method in (m for m in sent if kinds[m] == "top_k"):
        others = [m for m in sent if kinds[m] == "hard_threshold"]
        if others:
            nearest = min(others, key=lambda other: abs(np.log(sent[other] / sent[method])))
            pairs.append(f"{shown[method]} and {shown[nearest]} ({sent[nearest] / sent[method] - 1:+.1%})")
    return [f"About equal bytes over the run: {'; '.join(pairs)}."] if pairs else []


def numbers(runs: Sequence[Run], prefix: str) -> list[tuple[str, float]]:
    """The recorded metrics that begin with ``prefix``, each with the number at the end of its name.

    Raises ``NothingToDraw`` if there is none.
    """
    pattern = re.compile(rf"{re.escape(prefix)}[\d.e+-]+")  # not waited_mean
    names = {name for run in runs for name in run.records if pattern.fullmatch(name)}
    if not names:
        raise NothingToDraw(f"no run has {prefix}...")
    return sorted(((name, float(name.removeprefix(prefix))) for name in names), key=lambda pair: pair[1])


def _selection(group: Group, drawn: Methods) -> Panel:
    run = group.runs[0]
    size = sum(layer["elements"] for layer in run.summary["layers"].values())
    named = numbers(group.runs, SELECTION)
    kept = [max(1.0, np.floor(density * size + 1e-9)) for _, density in named]
    seeds = {
        method: [
            np.array([(k, run.curve(name).mean()) for run in runs])
            for k, (name, _) in zip(kept, named, strict=True)
        ]
        for method, runs in drawn.items()
    }
    panel = description.through(seeds, ENTRIES, LEFT_OUT)
    grid = np.geomspace(1, size, 200)
    note = "Dotted, grey: (1 - K/D)^(1/2), which no vector exceeds."
    bound = ((grid, np.sqrt(1 - grid / size)),)
    return replace(panel, references=bound, notes=(*panel.notes, note))


def _ages(group: Group, drawn: Methods, prefix: str) -> Panel:
    named = numbers(group.runs, prefix)
    longest = max(run.summary["step"] for run in group.runs)
    named = [(name, age) for name, age in named if age < longest]
    seeds = {
        method: [
            np.array([(age, run.curve(name).loc[run.summary["step"] / 2 :].mean()) for run in runs])
            for name, age in named
        ]
        for method, runs in drawn.items()
    }
    places = [(age, f"{age:g}") for _, age in named]
    panel = description.through(seeds, AGE, SHARES[prefix], places=places)
    return replace(panel, notes=(*panel.notes, *equal_bytes(group)))


def page(runs: Sequence[Run]) -> str:
    """Markdown: a section per subject, a row per method."""
    text = INTRODUCTION.format(long=LONG)
    for group in groups(map(with_ratio, runs)):
        good = quality(group.runs)
        codes = sorted({run.code for run in group.runs})
        seeds = sorted({run.seed for run in group.runs})
        facts = f"{group.facts}; seeds {', '.join(map(str, seeds))}; code {', '.join(codes)}"
        text += f"\n## {in_markdown(group.subject)}\n\n{in_markdown(facts)}.\n\n"
        heads = [
            "method",
            good.label,
            "bytes",
            "xi",
            "largest xi",
            "error over bound",
            f"residual unsent ≥ {LONG}",
            "longest",
        ]
        rows = []
        for method, runs in group.methods.items():
            cells = [
                method,
                _cell([good.factor * run.summary[good.name] for run in runs], 2),
                _cell([run.summary[BYTES.name] for run in runs], 0),
                _cell([run.curve(XI.name).median() for run in runs], 2),
                _cell([run.curve(XI.name).max() for run in runs], 2),
                _cell([run.curve(OF_BOUND).mean() for run in runs], 3),
                _cell([run.summary.get(f"{MASS}{LONG}", np.nan) for run in runs], 3),
                _cell([run.summary.get("diagnostics/unsent_longest", np.nan) for run in runs], 0),
            ]
            rows.append(cells)
        text += table(heads, rows)
    return f"{text}\n{WITHOUT_INTERVAL}\n"


def _cell(values: list[float], digits: int) -> str:
    """Mean ± standard deviation if there are several seeds; a dash if a run has no value."""
    if not np.isfinite(values).all():
        return "-"
    mean = f"{np.mean(values):,.{digits}f}"
    deviation = standard_deviation(values)
    return f"{mean}{counted(len(values))}" if deviation is None else f"{mean} ± {deviation:,.{digits}f}"


def with_ratio(run: Run) -> Run:
    """The run, with the ratio of the error to its bound in its records."""
    if "diagnostics/error_bound" not in run.records:
        return run
    share = run.records["compression/error"] / run.records["diagnostics/error_bound"]
    return replace(run, records=run.records.assign(**{OF_BOUND: share}))


def figures(runs: Sequence[Run]) -> Figures:
    """The four figures of each subject."""
    for group in groups(map(with_ratio, runs)):
        for name, figure in FIGURES.items():
            yield f"{group.stem}-{name}", partial(figure, group)


STUDY = Study(
    name="topk_convergence",
    question="Does Assumption 1 of the convergence of Top-k hold?",
    page=page,
    file="table.md",
    figures=figures,
    handwritten_pages=("results/pages/topk_convergence/topk_convergence.md",),
)
