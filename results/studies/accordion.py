"""ACCORDION against a hard threshold with lambda from k_low, Top-k at k_low and k_high, and dense SGD.

Makes a Markdown table and a figure from the runs of `make accordion`. The comparison is that of Sahu et al.,
2021, https://arxiv.org/abs/2108.00951; the method is from Agarwal et al., 2021,
https://arxiv.org/abs/2010.16248.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from results.compare.measures import Measure, costs, num_parameters, qualities
from results.escaping import in_markdown
from results.figures import sheet
from results.figures.description import curves, points
from results.figures.groups import file_stem, other_seeds, seeds_of
from results.figures.metrics import DENSITY, EPOCHS, MEAN_DENSITY, of_measure
from results.figures.panels import MOST_POINTS
from results.figures.saving import Figures
from results.figures.style import LINE_WIDTH, colour, dash
from results.read.matching import by_key, by_setting
from results.read.naming import asked, lambda_in_force
from results.read.run import Run
from results.studies.kit import Seeds, Study, every_run, first_of, notes, paired, require_compressors, table

ORDER = ("none", "top_k", "hard_threshold", "accordion")
MARKERS = {"none": "X", "top_k": "^", "hard_threshold": "s", "accordion": "o"}
HEIGHT = 2.9  # of a panel, inches
INTRODUCTION = """# ACCORDION and the hard threshold, every row

Written by `python -m results study accordion` from the runs of `make accordion`; [accordion.md](accordion.md)
discusses them. Quality is that of the last weights, mean ± standard deviation over the listed seeds.
Differences are ACCORDION's value minus the row's, paired over seeds, with Student's 95 % interval in
brackets. Bytes are sums over the whole training, with indices and counts: those that would leave a worker if
each worker had its own machine, and those that it handed to collectives. "At k_high": share of the training
in which layers were at k_high, mean over elements.
"""


Methods = dict[str, Seeds]  # by label


def methods_of(runs: Sequence[Run]) -> Methods:
    """Runs by label and seed.

    Raises ``ValueError`` for an unknown method, and unless there is one setting of ACCORDION.
    """
    require_compressors(runs, ORDER)
    found = by_key(sorted(runs, key=lambda run: (ORDER.index(run.compressor), _level(run))), label_of)
    named = [runs for runs in found.values() if first_of(runs).compressor == "accordion"]
    if len(named) != 1:
        raise ValueError(
            f"runs of {runs[0].subject} must include compressor=accordion in one setting, got {len(named)}"
        )
    return found


def label_of(run: Run) -> str:
    """The method with its given densities in per cent."""
    settings = run.config["compressor"]
    if run.compressor == "none":
        return "dense SGD"
    if run.compressor == "accordion":
        return f"ACCORDION, {100 * settings['k_low']:g} % or {100 * settings['k_high']:g} %"
    if run.compressor == "top_k":
        return f"Top-k, {100 * settings['density']:g} %"
    threshold = lambda_in_force(run)
    return "hard threshold" if threshold is None else f"hard threshold, lambda {threshold:.4g}"


def page(runs: Sequence[Run]) -> str:
    """Markdown: a table per setting, then notes."""
    parts = [INTRODUCTION]
    for methods in map(methods_of, by_setting(runs)):
        every = list(every_run(methods))
        measures = [*qualities(every)[:1], *costs(every)]
        ours = next(of_seed for of_seed in methods.values() if first_of(of_seed).compressor == "accordion")
        head = ["method", "asked for", "seeds", *(measure.label for measure in measures), "at k_high, %"]
        head += [f"ACCORDION minus it: {measure.label}" for measure in measures[:2]]
        rows = [
            [*_cells(label, of_seed, measures), *_beside(ours, of_seed, measures[:2])]
            for label, of_seed in methods.items()
        ]
        first = every[0]
        facts = f"{first.config['workers']} workers of {first.config['trainer']['batch_size']} samples, "
        facts += f"{num_parameters(first):,} parameters, {first.summary['step']:,} steps."
        shown = table(head, rows, words=3)
        parts.append("\n".join([f"## {in_markdown(_subject(methods))}", "", in_markdown(facts), "", shown]))
    return "\n".join([*parts, notes(runs)])


def share_at_high(run: Run) -> float | None:
    """Share of the training in which layers used k_high, mean over elements; None for other methods.

    It follows from the number of elements that each layer sent. Layers that send one element at both
    densities are left out.
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


def draw(methods: Methods) -> Any:
    """Quality against average density, and the density sent over the epochs."""
    runs = {label: list(of_seed.values()) for label, of_seed in methods.items()}
    quality = of_measure(qualities(list(every_run(methods)))[0])
    upper = points(runs, MEAN_DENSITY, quality, families=[])
    lower = curves(runs, EPOCHS, DENSITY, MOST_POINTS)
    labels = {label: f"{label}{others}" for label, others in other_seeds(runs).items()}
    title = f"{_subject(methods)}: quality against density, and density over epochs"
    return sheet.draw(title, seeds_of(runs), [[upper], [lower]], _styles(runs), labels, height=HEIGHT)


def _styles(methods: dict[str, list[Run]]) -> dict[str, dict[str, Any]]:
    """Styles in which a compressor's second setting has hollow markers and a thin line."""
    styles: dict[str, dict[str, Any]] = {}
    seen: list[str] = []
    for label, runs in methods.items():
        compressor = runs[0].compressor
        again = compressor in seen
        styles[label] = {
            "color": colour(compressor),
            "linestyle": dash(compressor),
            "linewidth": LINE_WIDTH * (0.6 if again else 1),
            "marker": MARKERS[compressor],
            "markersize": 6,
            **({"markerfacecolor": "white"} if again else {}),
        }
        seen.append(compressor)
    return styles


def _cells(label: str, of_seed: dict[int, Run], measures: Sequence[Measure]) -> list[str]:
    runs = list(of_seed.values())
    at_high = Measure("at_high", "at k_high, %", share_at_high, 100, 1)
    return [
        label,
        asked(runs[0]),
        ", ".join(map(str, of_seed)),
        *(measure.spread(runs) for measure in (*measures, at_high)),
    ]


def _beside(ours: dict[int, Run], theirs: dict[int, Run], measures: Sequence[Measure]) -> list[str]:
    """ACCORDION minus the row, paired over seeds."""
    if ours is theirs:
        return ["-"] * len(measures)
    found = [(measure, paired(measure, ours, theirs)) for measure in measures]
    return [measure.difference(*values) if values else "-" for measure, values in found]


def _level(run: Run) -> float:
    return run.config["compressor"].get("density") or 0.0


def _subject(methods: Methods) -> str:
    return first_of(next(iter(methods.values()))).subject


def figures(runs: Sequence[Run]) -> Figures:
    """One figure per setting."""
    for methods in map(methods_of, by_setting(runs)):
        yield file_stem(_subject(methods)), partial(draw, methods)


STUDY = Study(
    name="accordion",
    question="Is a constant threshold as good as detecting critical regimes?",
    page=page,
    file="table.md",
    figures=figures,
    handwritten_pages=("results/pages/accordion/accordion.md",),
)
