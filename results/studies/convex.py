"""The paper's convex experiments: values beside the paper's, equal bytes, and a figure for every setting.

A figure has suboptimality, ||x - x*||^2 and mean ||e||^2 over bits and epochs, and bits per step. A line is
the mean of a method over its seeds.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from results.compare.measures import LINK_BYTES
from results.compare.paper import ERROR_CURVES, EXACT, OFFSETS, PROBLEMS, ErrorCurve
from results.compare.statistics import counted, standard_deviation
from results.compare.verdicts import END_SHARE, is_run_of, judged, overall, tolerance
from results.figures import sheet
from results.figures.description import curves
from results.figures.groups import file_stem, legend_labels, named, seeds_of, styles_of
from results.figures.metrics import EPOCHS, STEPS, Metric
from results.figures.panels import MOST_POINTS
from results.figures.saving import Figures
from results.read.matching import by_method, by_setting
from results.read.naming import common_words, name_of, order, unused
from results.read.run import Run
from results.studies.kit import by_name

_BITS = "bits handed over per worker"
BITS = {  # by the value of --bits: those that a worker has handed over up to each record
    "paper": Metric("comm/paper_bits_total", f"{_BITS} (32 per value, no index)", from_start=True),
    "ledger": Metric("comm/bytes_sent_total", f"{_BITS} (values, indices and counts)", 8, from_start=True),
}
SUBOPTIMALITY = "convex/suboptimality"
TO_OPTIMUM = Metric(SUBOPTIMALITY, "f(x) - f*")
DISTANCE = Metric("convex/distance_squared", "||x - x*||²")
ERROR = Metric("compression/error", "mean ||e||² over workers")
HEIGHT = 2.6  # of a panel, inches
STATIONARY_FROM = 0.25  # share of a run's steps after which a threshold's residual is stationary


def names(runs: Sequence[Run], bits: str) -> dict[str, Any]:
    """The names of the template."""
    groups = [of for setting in by_setting(runs) for of in by_method(setting).values()]
    groups.sort(key=lambda group: (experiment(group[0]), order(group[0])))

    def matching(paper: ErrorCurve) -> list[Run]:
        """The runs with exactly the settings of the paper's experiment."""
        found = ([run for run in group if is_run_of(run, paper)] for group in groups)
        return max(found, key=len, default=[])

    def facts_of(name: str) -> dict[str, float]:
        """L, f(x0) and f* of a problem as the paper poses it; empty without a run."""
        model = {"offset": OFFSETS[name], "l2": None}
        for run in runs:
            if run.config["data"].get("name") == name and model.items() <= run.config["model"].items():
                return dict(run.summary["problem"])
        return {}

    functions = by_name(at_equal_bytes, common_bytes, ends, experiment, facts_of, judged, largest, matching)
    functions |= by_name(mean_std, name_of, overall, settled_errors, settings_of, tolerance)
    return functions | {
        "ERROR_CURVES": ERROR_CURVES,
        "EXACT": EXACT,
        "PROBLEMS": PROBLEMS,
        "of_method": groups,
        "compared": list(compared(runs)),
    }


def experiment(run: Run, separator: str = " ") -> str:
    """The name of the experiment, with the partition if it is a special one."""
    partition = run.config["data"]["partition"]
    return run.subject if partition in ("iid", "contiguous") else f"{run.subject}{separator}{partition}"


def settings_of(paper: ErrorCurve) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in paper.settings.items())


def settled_errors(runs: Sequence[Run]) -> list[float]:
    """Per run the mean error after the first quarter of the steps."""
    errors = [run.curve(ERROR.name) for run in runs]
    return [float(each[each.index >= STATIONARY_FROM * each.index[-1]].mean()) for each in errors]


def largest(runs: Sequence[Run], metric: str) -> float:
    return max(run.curve(metric).max() for run in runs)


def ends(runs: Sequence[Run], metric: str, factor: float = 1) -> str:
    return mean_std([factor * run.summary[metric] for run in runs if metric in run.summary])


def mean_std(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, spread = float(np.mean(values)), standard_deviation(values)
    return f"{mean:.4g}{counted(len(values))}" if spread is None else f"{mean:.4g} ± {spread:.2g}"


Pair = tuple[Run, Run]  # Top-k and a threshold, with the same seed


def compared(runs: Sequence[Run]) -> Iterator[tuple[str, tuple[str, ...], list[Pair]]]:
    """Partition, methods and pairs: each Top-k and threshold of heterogeneous workers, by common seeds."""
    for group in by_setting(run for run in runs if run.subject == "heterogeneity"):
        methods = by_method(group)
        of_kind = [
            [name for name, of in methods.items() if of[0].compressor == kind]
            for kind in ("top_k", "hard_threshold")
        ]
        for both in product(*of_kind):
            ours, theirs = ({run.seed: run for run in methods[name]} for name in both)
            pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
            if pairs:
                yield group[0].config["data"]["partition"], both, pairs


def common_bytes(pairs: Sequence[Pair]) -> list[float]:
    return [min(run.summary[LINK_BYTES] for run in pair) for pair in pairs]


def at_equal_bytes(pairs: Sequence[Pair], side: int) -> list[float]:
    """f(x) - f* of the runs of one side, at the smaller number of bytes of their pair."""
    return [
        value_at_bytes(pair[side], SUBOPTIMALITY, sent)
        for pair, sent in zip(pairs, common_bytes(pairs), strict=True)
    ]


def value_at_bytes(run: Run, metric: str, sent: float) -> float:
    """The mean of a metric over the last tenth of ``sent`` bytes, because it oscillates between steps."""
    totals = pd.concat([pd.Series({0: 0.0}), run.curve(LINK_BYTES)])
    window = totals.index[(totals > (1 - END_SHARE) * sent) & (totals <= sent)]
    if len(window) == 0:  # no record in the last tenth
        window = totals.index[totals <= sent][-1:]
    return float(run.curve(metric)[window].mean())


def figures(runs: Sequence[Run], bits: str) -> Figures:
    """One figure per setting; bits are counted by the paper's rule or are all bits handed over."""
    stems: list[str] = []
    for group in by_setting(runs):
        stems.append(unused(file_stem(experiment(group[0], "-")), stems))
        yield stems[-1], partial(draw, group, bits)


def draw(runs: list[Run], bits: str) -> Any:
    """Six panels for the runs of one setting."""
    methods = named(by_method(runs))
    sent = BITS[bits]
    per_step = Metric("bits per step", "bits per worker and step", quantity=partial(increase_per_step, sent))
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


def increase_per_step(total: Metric, run: Run) -> pd.Series:
    """Increase of a sum over steps, mean over the steps since the last record."""
    sums = total.factor * run.curve(total.name)
    before = pd.concat([pd.Series({0: 0.0}), sums.iloc[:-1]])
    per_step = (sums.to_numpy() - before.to_numpy()) / (sums.index.to_numpy() - before.index.to_numpy())
    return pd.Series(per_step, index=sums.index)
