"""WikiText-2 with the small LSTM: Top-k, and thresholds that send as many bytes, on the whole text.

The comparison is that of Sahu et al., 2021, https://arxiv.org/abs/2108.00951, with a smaller model and a
smaller vocabulary. Methods without a finished run have an empty row.
"""

import statistics
from collections.abc import Sequence
from functools import partial

from results.command import paragraph
from results.compare.joint_intervals import LEAST_SEEDS, NOT_SHOWN, joint_interval
from results.compare.measures import LINK_BYTES, Measure, num_parameters
from results.figures import sheet
from results.figures.description import curves
from results.figures.groups import other_seeds, seeds_of, styles_of
from results.figures.metrics import DENSITY, EPOCHS, TOTAL_ERROR
from results.figures.panels import MOST_POINTS
from results.figures.saving import Figures
from results.read.matching import by_key
from results.read.naming import lambda_in_force
from results.read.run import Run
from results.studies.kit import (
    Seeds,
    Study,
    differences,
    first_of,
    notes,
    paired,
    require_compressors,
    table,
)

NONE = "none"
TOP_K = {"1 %": 0.01, "0.1 %": 0.001}
EQUAL = {"one_percent": "1 %", "tenth_percent": "0.1 %"}  # Top-k, by name in sweeps/wikitext2/chosen
LABELS = (
    NONE,
    *(word.format(name) for name in TOP_K for word in ("Top-k {}", "threshold, bytes of Top-k {}")),
)
INTRODUCTION = """Written by `python -m results study wikitext2` from the runs of `make wikitext2`: the small
    LSTM on the whole of WikiText-2{setting}. The vocabulary has the 5,000 most frequent words; all others
    are one symbol, so perplexities are lower than those of the full vocabulary and cannot be compared with
    published ones."""
CHOSEN = " The thresholds were chosen by bytes alone, in runs with another seed."
READING = """Perplexities are those of the last weights. ± is the standard deviation over seeds; differences
    are paired over seeds, with Student's 95 % interval in brackets. MB are 10^6 bytes that left a worker over
    the whole training, if each worker had its own machine, with indices and counts. Total error is the sum
    over all steps of ||p - C(p)||^2."""


def _of(name: str, label: str, factor: float = 1, digits: int | None = None) -> Measure:
    return Measure(name, label, lambda run: run.summary.get(name), factor, digits)


TEST = _of("test/perplexity", "test perplexity", digits=2)
VALIDATION = _of("validation/perplexity", "validation perplexity", digits=2)
BYTES = _of(LINK_BYTES, "MB that left a worker", 1e-6)
COSTS = (
    BYTES,
    _of("compression/density_mean", "average density, %", 100),
    _of("compression/total_error", "total error"),
)

Methods = dict[str, Seeds]


def label_of(run: Run) -> str:
    """The method with its setting, as named on the page. Raises ``ValueError`` for a setting of no sweep."""
    settings = run.config["compressor"]
    if run.compressor == NONE:
        return NONE
    if run.compressor == "top_k":
        return f"Top-k {100 * settings['density']:g} %"
    for name, density in EQUAL.items():
        if run.config["budget"].get("matched", {}).get(name) == settings["threshold"]:
            return f"threshold, bytes of Top-k {density}"
    raise ValueError(f"{run.path}: threshold must be one of sweeps/wikitext2, got {settings['threshold']}")


def methods_of(runs: Sequence[Run]) -> Methods:
    """Runs by label and seed, in the order of ``LABELS``."""
    require_compressors(runs, (NONE, "top_k", "hard_threshold"))
    found = by_key(runs, label_of)
    return {label: found[label] for label in LABELS if label in found}


def page(runs: Sequence[Run]) -> str:
    """Markdown: the table of the methods, the differences in words, and the cost."""
    methods = methods_of(runs)
    head = ["method", "lambda", "seeds", TEST.label, VALIDATION.label, "minus none", "minus Top-k"]
    head += ["bytes over Top-k's", *(measure.label for measure in COSTS)]
    rows = [_row(label, methods) for label in LABELS]
    introduction = INTRODUCTION.format(setting=_setting(runs[0]))
    if any(_top_k_beside(label, methods) for label in methods):
        introduction += CHOSEN
    words = [paragraph(introduction), paragraph(READING)]
    hours = sum(run.summary["wall_seconds"] for run in runs) / 3600
    cost = f"{len(runs)} runs, {hours:.1f} hours by the clock in all, with other work beside them."
    parts = ["# WikiText-2", "", *words, table(head, rows, words=3), _in_words(methods)]
    parts += ["![density and total error over epochs](wikitext2.png)\n"] * (len(methods) > 1)
    return "\n".join([*parts, paragraph(cost), notes(runs)])


def _setting(run: Run) -> str:
    trainer = run.config["trainer"]
    return (
        f" ({num_parameters(run):,} parameters, {run.config['workers']} workers with {trainer['batch_size']} "
        f"columns each, epochs: {trainer['epochs']:g}, {run.summary['step']:,} steps)"
    )


def _row(label: str, methods: Methods) -> list[str]:
    own = methods.get(label)
    if own is None:
        return [label, "-", "no finished run", *["-"] * (5 + len(COSTS))]
    runs, beside = list(own.values()), _top_k_beside(label, methods)
    threshold = lambda_in_force(first_of(own))
    return [
        label,
        "-" if threshold is None else f"{threshold:.4g}",
        ", ".join(map(str, own)),
        TEST.spread(runs),
        VALIDATION.spread(runs),
        _minus(own, methods.get(NONE) if label != NONE else None),
        _minus(own, beside),
        f"{_megabytes(own) / _megabytes(beside):.3f}" if beside else "-",
        *(measure.spread(runs) for measure in COSTS),
    ]


def _top_k_beside(label: str, methods: Methods) -> Seeds | None:
    """The Top-k whose bytes a threshold was chosen for; None for other methods and without its runs."""
    name, _, top_k = label.partition(", bytes of ")
    return methods.get(top_k) if name == "threshold" else None


def _minus(own: Seeds, other: Seeds | None) -> str:
    difference = paired(TEST, own, other) if other else None
    return TEST.difference(*difference) if difference else "-"


def _megabytes(own: Seeds) -> float:
    return statistics.fmean(BYTES.values(list(own.values())))


def _in_words(methods: Methods) -> str:
    """Statements on the differences in test perplexity, by joint intervals; empty without enough seeds."""
    compared: list[tuple[str, list[float]]] = []
    for label, own in methods.items():
        for said, other in ((NONE, methods.get(NONE)), ("Top-k", _top_k_beside(label, methods))):
            values = differences(TEST, own, other) if other and other is not own else []
            if len(values) >= LEAST_SEEDS:
                compared.append((f"{label} beside {said}", values))
    if not compared:
        return ""
    said_of: dict[str, list[str]] = {}
    for words, values in compared:
        verdict = joint_interval(values, len(compared)).word("higher", "lower")
        said_of.setdefault(verdict, []).append(words)
    shown = ". ".join(f"{word.capitalize()}: {'; '.join(where)}" for word, where in said_of.items())
    return paragraph(
        f"""**Test perplexity, here (lower is better). {shown}.** These words use intervals for the
        {len(compared)} comparisons of this page (Bonferroni), which all hold together in at least 95 % of
        such experiments; "{NOT_SHOWN}" if an interval contains 0, which is no proof of equality."""
    )


def figures(runs: Sequence[Run]) -> Figures:
    """Density and total error over epochs, of several methods."""
    methods = {label: list(own.values()) for label, own in methods_of(runs).items()}
    if len(methods) < 2:
        return
    panels = [curves(methods, EPOCHS, metric, MOST_POINTS) for metric in (DENSITY, TOTAL_ERROR)]
    title = "WikiText-2, small LSTM: density and total error over epochs"
    labels = {label: f"{label}{others}" for label, others in other_seeds(methods).items()}
    yield "wikitext2", partial(sheet.draw, title, seeds_of(methods), [panels], styles_of(methods), labels)


STUDY = Study(
    name="wikitext2",
    question="Is a threshold as good as Top-k at equal bytes, for an LSTM on the whole of WikiText-2?",
    page=page,
    figures=figures,
    needs=(LINK_BYTES, "test/perplexity"),
)
