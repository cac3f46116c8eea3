"""AutoLRS against a tuned constant rate, a step schedule and a cosine, with equal total steps.

The total includes the steps of AutoLRS's trials, so its last weights result from about half as many steps as
those of the others. Jin et al., ICLR 2021, https://arxiv.org/abs/2105.10762.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from results.compare.measures import LINK_BYTES, qualities
from results.compare.statistics import (
    WITHOUT_INTERVAL,
    counted,
    mean_and_interval,
    paired_difference,
)
from results.escaping import in_markdown
from results.figures import sheet
from results.figures.description import curves, single
from results.figures.groups import file_stem, other_seeds, seeds_of
from results.figures.metrics import Metric, of_measure
from results.figures.panels import MOST_POINTS
from results.figures.saving import Figures
from results.figures.style import LINE_WIDTH
from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import Option, Study, table

SEARCHED = "autolrs"
LABELS = {
    "autolrs": "AutoLRS",
    "constant": "constant, tuned",
    "warmup_step": "steps: a tenth at 1/2 and 3/4",
    "cosine": "cosine",
}
STYLES = {  # Okabe and Ito's colours, and a dash each
    name: {"color": colour, "linestyle": dash, "linewidth": LINE_WIDTH, "marker": marker, "markersize": 5}
    for name, colour, dash, marker in (
        ("autolrs", "#0072B2", "solid", "o"),
        ("constant", "#000000", (0, (1, 1)), "X"),
        ("warmup_step", "#D55E00", (0, (5, 2)), "^"),
        ("cosine", "#009E73", (0, (6, 2, 1, 2)), "s"),
    )
}
RATE = Metric("train/learning_rate", "learning rate")
HEIGHT = 2.9  # of a panel, inches
INTRODUCTION = """# Schedules at equal steps

Written by `python -m results study autolrs` from the runs of `make autolrs`. Numbers are mean ± half of
Student's 95 % interval over the listed seeds. All runs have the same number of steps. For AutoLRS, this
number and the bytes include its trials, whose results are discarded. "Steps saved" compares a run with the
constant rate's run of the same seed. Let q be the quality of the constant rate's last evaluation. The column
has the relative difference between the numbers of steps in which the two runs first reached q, trials
included; it is negative if the constant rate was faster, and "never" if a run did not reach q with some seed.
Before its first decay, a run with a step schedule is equal to the constant rate's run. If both reach q in
this part, nothing is saved: "one run until then".
"""


def schedule_of(run: Run) -> str:
    """The schedule's name on the command line. Raises ``ValueError`` for a schedule outside of the study."""
    names = {
        "AutoLRS": "autolrs",
        "Constant": "constant",
        "ConstantRate": "constant",
        "WarmupStep": "warmup_step",
        "Cosine": "cosine",
    }
    name = run.config["schedule"]["_target_"].split(".")[-1]
    if name not in names:
        raise ValueError(f"runs must be of schedule={', '.join(LABELS)}, got {name}: {run.path}")
    return names[name]


def schedules_of(runs: Sequence[Run]) -> dict[str, dict[str, list[Run]]]:
    """Runs by subject and schedule, with ascending seeds."""
    found: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(runs, key=lambda run: (run.subject, run.seed, run.config["optimizer"].get("lr") or 0)):
        found[run.subject][schedule_of(run)].append(run)
    return {model: dict(by_schedule) for model, by_schedule in sorted(found.items())}


def steps_in_all(run: Run, steps: np.ndarray) -> np.ndarray:
    """Number of steps including earlier trials, at each of these ``steps`` of the training."""
    searched = run.curve("autolrs/search_steps")
    if searched.empty:
        return steps
    at = np.searchsorted(searched.index.to_numpy(), steps, side="left") - 1
    # The record at the first step of a stage was made before the stage's trials.
    return steps + np.where(at >= 0, searched.to_numpy()[np.maximum(at, 0)], 0)


def steps_until(run: Run, metric: str, value: float, higher_is_better: bool) -> float | None:
    """Steps, including trials, until the first evaluation as good as ``value``; None if there is none."""
    curve = run.curve(metric)
    good = curve >= value if higher_is_better else curve <= value
    if not good.any():
        return None
    return float(steps_in_all(run, np.array([curve.index[good.to_numpy().argmax()]]))[0])


def page(runs: Sequence[Run], tried: Sequence[Run]) -> str:
    """Markdown: a section per model; ``tried`` are the runs that tuned the constant rate.

    Raises ``ValueError`` for two runs of the same model, schedule and seed.
    """
    by_key(runs, lambda run: (run.subject, schedule_of(run)))
    by_model, tuning = schedules_of(runs), schedules_of(tried)
    sections = [INTRODUCTION]
    for model, by_schedule in by_model.items():
        constant = by_schedule.get("constant", [])
        metric, label, factor, higher = _quality(next(iter(by_schedule.values())))
        head = ["schedule", "seeds", label, "against constant", "MB that left a worker", "steps saved"]
        rows = []
        for schedule in [name for name in LABELS if name in by_schedule]:
            runs = by_schedule[schedule]
            rows.append(
                [
                    LABELS[schedule],
                    ", ".join(str(run.seed) for run in runs),
                    _spread([factor * run.summary[metric] for run in runs]),
                    _against(runs, constant, metric, factor),
                    _spread([_bytes(run) / 1e6 for run in runs]),
                    _saved(runs, constant, metric, higher),
                ]
            )
        lines = [f"## {in_markdown(model)}", "", table(head, rows, words=2).rstrip("\n")]
        rates = tuning.get(model, {}).get("constant", [])
        if rates:
            tried = ", ".join(
                f"{run.config['optimizer']['lr']:g}: {factor * run.summary[metric]:.2f}" for run in rates
            )
            seeds = ", ".join(sorted({str(run.seed) for run in rates}))
            lines += ["", f"Constant rates tried, with seed {seeds}, and their {label}: {tried}."]
        sections.append("\n".join(lines))
    return "\n\n".join([*sections, WITHOUT_INTERVAL]) + "\n"


def draw(model: str, by_schedule: dict[str, list[Run]]) -> Any:
    """Quality and, below it, rates over steps including trials; AutoLRS has a line of rates per seed."""
    methods = {LABELS[name]: by_schedule[name] for name in LABELS if name in by_schedule}
    quality = of_measure(qualities(next(iter(by_schedule.values())))[0])
    upper = curves(methods, _with_trials(quality.name), quality, MOST_POINTS)
    rates = []
    for schedule in [name for name in LABELS if name in by_schedule]:
        for run in by_schedule[schedule] if schedule == SEARCHED else by_schedule[schedule][:1]:
            rate = run.curve(RATE.name)
            rates.append((LABELS[schedule], steps_in_all(run, rate.index.to_numpy()), rate.to_numpy()))
    lower = single(rates, _with_trials(RATE.name), RATE, "learning rates; one line of AutoLRS per seed")
    upper = replace(upper, x=lower.x)  # both panels have the same x axis
    styles = {LABELS[name]: style for name, style in STYLES.items()}
    labels = {label: f"{label}{others}" for label, others in other_seeds(methods).items()}
    title = f"{model}: quality and learning rate against steps"
    return sheet.draw(title, seeds_of(methods), [[upper], [lower]], styles, labels, height=HEIGHT)


def _with_trials(name: str) -> Metric:
    """The steps at which a metric was recorded, including AutoLRS's earlier trials."""

    def of(run: Run) -> pd.Series:
        at = run.curve(name).index
        return pd.Series(steps_in_all(run, at.to_numpy()), index=at)

    return Metric("steps in all", "steps, AutoLRS's trials included", can_be_logarithmic=False, quantity=of)


def _quality(runs: Sequence[Run]) -> tuple[str, str, float, bool]:
    """(metric, label, factor, whether higher is better) of these runs' quality."""
    found = qualities(runs)[0]
    return found.name, found.label, found.factor, "perplexity" not in found.name and "loss" not in found.name


def _bytes(run: Run) -> float:
    return run.summary[LINK_BYTES] + run.summary.get("autolrs/search_link_bytes_sent_total", 0.0)


def _spread(values: list[float]) -> str:
    mean, half = mean_and_interval(values)
    return f"{mean:.2f}{counted(len(values))}" if half is None else f"{mean:.2f} ± {half:.2f}"


def _against(runs: list[Run], constant: list[Run], metric: str, factor: float) -> str:
    seeds = {run.seed: run for run in constant}
    pairs = [(run, seeds[run.seed]) for run in runs if run.seed in seeds]
    if not pairs or runs is constant:
        return "-"
    mean, low, high, count = paired_difference(
        *([factor * run.summary[metric] for run in side] for side in zip(*pairs, strict=True))
    )
    return f"{mean:+.2f}" + (f" [{low:+.2f}, {high:+.2f}]" if low is not None else counted(count))


def _saved(runs: list[Run], constant: list[Run], metric: str, higher: bool) -> str:
    seeds = {run.seed: run for run in constant}
    shares, shared = [], []
    for run in runs:
        if run.seed not in seeds or runs is constant:
            return "-"
        other = seeds[run.seed]
        needed: Any = steps_until(other, metric, other.summary[metric], higher)
        taken = steps_until(run, metric, other.summary[metric], higher)
        if taken is None:
            return "never"
        if taken <= one_run_until(run, other):
            shared.append(run.seed)
        shares.append(100 * (1 - taken / needed))
    if shared:
        which = f" in seed{'s' * (len(shared) > 1)} {', '.join(map(str, shared))}"
        return f"one run until then{which if len(shared) < len(runs) else ''}"
    mean, half = mean_and_interval(shares)
    return f"{mean:.2f} %{counted(len(shares))}" if half is None else f"{mean:.2f} ± {half:.2f} %"


def one_run_until(run: Run, other: Run) -> int:
    """The last recorded step up to which two runs of one seed had equal rates; 0 if there is none."""
    rates, others = (each.curve("train/learning_rate") for each in (run, other))
    last = 0
    for step, rate in rates.items():
        if others.get(step) != rate:
            break
        last = int(step)
    return last


def figures(runs: Sequence[Run], tried: Sequence[Run]) -> Figures:
    """One figure per model."""
    for model, by_schedule in schedules_of(runs).items():
        yield file_stem(model), partial(draw, model, by_schedule)


STUDY = Study(
    name="autolrs",
    question="Does the search for the learning rate save steps?",
    page=page,
    file="table.md",
    figures=figures,
    option=Option(name="--tuning", help="folder with the constant rates tried", output="autolrs_tuning"),
    handwritten_pages=("results/pages/autolrs/autolrs.md", "docs/papers/autolrs.md"),
)
