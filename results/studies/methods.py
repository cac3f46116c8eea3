"""Every method on three small tasks: quality over the bytes that left a worker, each at a learning rate of its own.

The rate is the best of four, tried with a seed that the comparison does not have.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from results.command import paragraph
from results.compare.measures import LINK_BYTES, Measure, qualities, require_several_workers
from results.compare.statistics import WITHOUT_INTERVAL
from results.escaping import Marked, code, in_markdown
from results.figures import sheet
from results.figures.description import points
from results.figures.groups import Series, seeds_of
from results.figures.metrics import FINAL_BYTES, of_measure
from results.figures.panels import NothingToDraw
from results.figures.saving import Figures
from results.figures.style import line_styles
from results.read.folders import run_folders
from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import ROOT, Option, Seeds, Study, every_run, notes, table
from trainers.records import files as run_files

PREFIX = "methods_"  # of a run's name: methods_TASK-METHOD
BASELINE = "none"
RATES = Path("sweeps/methods/chosen/rates.yaml")
RUNS_A_METHOD = 7  # of a task: four rates, three seeds
HEIGHT = 3.0  # of a panel, inches


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every method is trained on."""

    words: str
    tuned_by: str  # metric of a run's summary that the rate is chosen by
    higher_is_better: bool
    untrained: float  # as good as this is a model that has learned nothing worth its name
    why: str  # what ``untrained`` is


TASKS = {
    "resnet20": Task(
        words="ResNet-20 on scikit-learn's digits, 4 workers of 16 images, 8 epochs",
        tuned_by="test/accuracy",  # there is no validation split
        higher_is_better=True,
        untrained=0.2,
        why="20 %, twice as good as a guess",
    ),
    "lstm": Task(
        words="an LSTM of width 64 on Python's reference, 4 workers of 4 columns, 3 epochs",
        tuned_by="validation/perplexity",
        higher_is_better=False,
        untrained=242.0,
        why="242, the perplexity of answering by the words' frequencies",
    ),
    "madelon": Task(
        words="logistic regression on madelon, 20 workers of one row, 3,000 steps",
        tuned_by="convex/suboptimality",
        higher_is_better=False,
        untrained=11.5,
        why="f(x0) - f* = 11.5, where the run begins",
    ),
}
INTRODUCTION = """Written by `python -m results study methods` from the runs of `make methods`. Every method of
    `conf/compressor/`, with its paper's settings and, where it has one, a density of 1 % (ACCORDION: 0.1 % or
    1 %, with a choice after each epoch), and with the feedback of its paper; `ef21` and `ef21_sgdm` stand around
    Top-k, `diana` around QSGD. Every method had the same tuning budget in each task: four learning rates with
    seed {tuned}, and the best of them by {tuned_by}. The rates are the same four for all methods but `signsgd`,
    whose steps do not follow the gradient's size. Compared are seeds {seeds}, which no rate was chosen by. A rate
    at the end of its four is marked with *: a better one may lie beyond."""
READING = """Mean ± standard deviation over seeds; MB are 10^6 bytes that left a worker over the whole training,
    were each a machine of its own. The tasks are small and short, so that all of this runs on two cores: they show
    what a method does in three cases, and reproduce no published number. A warm-up of a published length, as
    DGC's 4 epochs, is a larger share of them than of the paper's trainings."""

Methods = dict[str, Seeds]  # by name, then by seed
Rates = dict[str, dict[str, float]]  # by task and method


def task_of(run: Run) -> str:
    """The task's name. Raises ``ValueError`` for a run of another study."""
    name = _task_in(run.config["name"])
    if name not in TASKS:
        raise ValueError(f"runs must be named {PREFIX}TASK-METHOD, got {run.config['name']}: {run.path}")
    return name


def method_of(run: Run) -> str:
    """As the comparison calls it: the compressor or, where that one stands around others, the feedback."""
    return str(run.config["budget"]["method"])


def rate_of(run: Run) -> float:
    return float(run.config["optimizer"]["lr"])


def by_task(runs: Sequence[Run]) -> dict[str, Methods]:
    """Runs by task, method and seed, in the order of ``TASKS`` and of names, with the baseline first.

    Raises ``ValueError`` for two runs of one place that differ in more than their seed, and for runs of one
    worker.
    """
    require_several_workers(runs)
    found: dict[str, Methods] = {}
    for task in TASKS:
        own = sorted(
            (run for run in runs if task_of(run) == task),
            key=lambda run: (method_of(run) != BASELINE, method_of(run)),
        )
        if own:
            found[task] = by_key(own, method_of)
    return found


def chosen(tried: Sequence[Run]) -> Rates:
    """For each task and method the rate of the run with the best quality; of equal ones the lowest.

    A method whose runs all ended without a number has no rate. Raises ``ValueError`` for runs of several seeds.
    """
    seeds = {run.seed for run in tried}
    if len(seeds) > 1:
        raise ValueError(
            f"rates must be chosen by runs of one seed, got {', '.join(map(str, sorted(seeds)))}"
        )
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for run in tried:
        task = task_of(run)
        value = run.summary.get(TASKS[task].tuned_by)
        if value is None or not math.isfinite(value):
            continue
        mark = (-value if TASKS[task].higher_is_better else value, rate_of(run))
        own = best.setdefault(task, {})
        own[method_of(run)] = min(own.get(method_of(run), mark), mark)
    return {
        task: {name: rate for name, (_, rate) in sorted(own.items())} for task, own in sorted(best.items())
    }


def tune(tried: Sequence[Run]) -> bool:
    """Write the rates that ``tried`` choose, and keep those of methods without such runs; whether any changed.

    The file is part of the repository, so that the runs that read it are of committed code.
    """
    path = ROOT / RATES
    before = path.read_text(encoding="utf-8")
    head = "".join(line for line in before.splitlines(keepends=True) if line.startswith("#"))
    rates = yaml.safe_load(before)["budget"]["rates"]
    for task, own in chosen(tried).items():
        rates[task] = dict(sorted((rates.get(task, {}) | own).items()))
    after = head + yaml.safe_dump({"budget": {"rates": rates}})
    path.write_text(after, encoding="utf-8")
    return after != before


def page(runs: Sequence[Run], tried: Sequence[Run]) -> str:
    """Markdown: how the methods were tuned, one table, what does not train, the cost."""
    found = by_task(runs)
    tuned_by = "; ".join(f"{TASKS[task].tuned_by} in {task}" for task in found)
    facts = {
        "tuned": ", ".join(map(str, sorted({run.seed for run in tried}))) or "unknown",
        "seeds": ", ".join(map(str, sorted({run.seed for run in runs}))),
        "tuned_by": tuned_by,
    }
    words = [paragraph(INTRODUCTION.format(**facts)), paragraph(READING), _tasks(found)]
    parts = ["# Every method", "", *words, "![Quality over bytes](methods.png)\n"]
    parts += [_table(found, tried), _without_training(found, tried), _cost(found, [*runs, *tried])]
    return "\n".join([*parts, paragraph(WITHOUT_INTERVAL), notes(runs)])


def trains(task: str, runs: Sequence[Run]) -> bool:
    """Whether the mean over seeds is better than ``Task.untrained``."""
    values = [run.summary.get(TASKS[task].tuned_by, math.nan) for run in runs]
    mean = statistics.fmean(values)
    return mean > TASKS[task].untrained if TASKS[task].higher_is_better else mean < TASKS[task].untrained


def figures(runs: Sequence[Run], tried: Sequence[Run]) -> Figures:
    """One, with a panel per task."""
    yield "methods", lambda: draw(runs)


def draw(runs: Sequence[Run]) -> Any:
    """Quality over the bytes on the link; a mark per method that trains, its seeds as dots."""
    found, panels, absent = by_task(runs), [], []
    drawn: dict[str, list[Run]] = {}
    for task, methods in found.items():
        own = {name: list(of_seed.values()) for name, of_seed in methods.items()}
        kept = {name: each for name, each in own.items() if trains(task, each)}
        absent += [f"{task}: {', '.join(sorted(own.keys() - kept.keys()))}"] * (len(kept) < len(own))
        if kept:
            quality = of_measure(qualities([run for each in kept.values() for run in each])[0])
            panels.append([_titled(points(kept, FINAL_BYTES, quality, []), task)])
            drawn |= {name: each for name, each in kept.items() if name not in drawn}
    if not panels:
        raise NothingToDraw("no method trains")
    lines = [
        Series(name, name, name, (name,)) for name in sorted(drawn, key=lambda each: (each != BASELINE, each))
    ]
    not_drawn = [f"Do not train, so not drawn: {'; '.join(absent)}."] if absent else []
    return sheet.draw(
        "Every method at its own learning rate: quality over bytes",
        seeds_of(drawn),
        panels,
        line_styles(lines, marked=True),
        {line.label: line.label for line in lines},
        notes=not_drawn,
        height=HEIGHT,
    )


def _task_in(name: object) -> str:
    return str(name).removeprefix(PREFIX).partition("-")[0]


def _tasks(found: Mapping[str, Methods]) -> str:
    return "\n".join(f"- {task}: {TASKS[task].words}." for task in found) + "\n"


def _table(found: Mapping[str, Methods], tried: Sequence[Run]) -> str:
    """A row per method: quality, bytes and rate in each task."""
    names = list(dict.fromkeys(name for methods in found.values() for name in methods))
    names.sort(key=lambda name: (name != BASELINE, name))
    head, ends = ["method"], _ends(tried)
    measures = {task: qualities(list(every_run(methods)))[0] for task, methods in found.items()}
    for task in found:
        head += [f"{task}: {measures[task].label}", "MB that left a worker", "rate"]
    rows = []
    for name in names:
        cells: list[object] = [code(name)]
        for task, methods in found.items():
            own = list(methods.get(name, {}).values())
            if not own:
                cells += ["-", "-", "-"]
                continue
            end = "\\*" * (rate_of(own[0]) in ends.get((task, name), ()))
            cells += [measures[task].spread(own), BYTES.spread(own), Marked(f"{rate_of(own[0]):g}{end}")]
        rows.append(cells)
    return "## Quality and bytes\n\n" + table(head, rows)


def _ends(tried: Sequence[Run]) -> dict[tuple[str, str], tuple[float, float]]:
    """The lowest and the highest rate tried, by task and method."""
    rates: dict[tuple[str, str], list[float]] = {}
    for run in tried:
        rates.setdefault((task_of(run), method_of(run)), []).append(rate_of(run))
    return {key: (min(own), max(own)) for key, own in rates.items()}


def _without_training(found: Mapping[str, Methods], tried: Sequence[Run]) -> str:
    """Each method that does not train on a task, or not with every seed, with the reason that its runs give."""
    compared = [run for methods in found.values() for run in every_run(methods)]
    failed = failures({run.path.parents[1] for run in (*compared, *tried)})
    known = {path.stem for path in (ROOT / "conf/compressor").glob("*.yaml")}
    known |= {name for methods in found.values() for name in methods} | {name for _, name in failed}
    rows = []
    for task, methods in found.items():
        tuning = {run.seed for run in tried if task_of(run) == task}
        for name in sorted(known):
            own, reasons = list(methods.get(name, {}).values()), failed.get((task, name), [])
            is_bad = bool(own) and not trains(task, own)
            said = [_quality_in_words(task, own)] * is_bad
            said += [words for seed, words in reasons if seed not in tuning or not own]
            if said or not own:
                rows.append([code(name), task, "; ".join(said) or "not run"])
    title = "## What does not train\n\n"
    if not rows:
        return f"{title}Every method trains on every task, with every seed.\n"
    return title + table(["method", "task", "why"], rows, words=3)


def failures(folders: Iterable[Path]) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Seed and reason of the runs that ended with an error, by task and method."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for path in (path for folder in sorted(folders) for path in run_folders(folder)):
        try:
            summary, config = run_files.read_summary(path), run_files.read_config(path)
        except run_files.UnreadableFileError:  # still going, or interrupted
            continue
        if summary["status"] == "finished" or _task_in(config["name"]) not in TASKS:
            continue
        words = (
            f"rate {config['optimizer']['lr']:g}, seed {config['seed']}: {summary.get('error', 'no reason')}"
        )
        key = _task_in(config["name"]), str(config["budget"]["method"])
        found.setdefault(key, []).append((config["seed"], words))
    return {key: sorted(reasons) for key, reasons in found.items()}


def _quality_in_words(task: str, runs: Sequence[Run]) -> str:
    name = TASKS[task].tuned_by
    quality = Measure(name, name, lambda run: run.summary.get(name)).spread(runs)
    return f"{name} {quality} at rate {rate_of(runs[0]):g}, not better than {TASKS[task].why}"


def _cost(found: Mapping[str, Methods], runs: Sequence[Run]) -> str:
    """What all of it took, and what all methods of ``conf/compressor/`` would."""
    count = max(len(methods) for methods in found.values())
    means = {
        task: statistics.fmean(run.summary["wall_seconds"] for run in runs if task_of(run) == task)
        for task in found
    }
    hours = count * RUNS_A_METHOD * sum(means.values()) / 3600
    each = ", ".join(f"{mean:.0f} s in {task}" for task, mean in means.items())
    words = f"""{len(runs)} runs, {sum(run.summary["wall_seconds"] for run in runs) / 3600:.1f} hours in all; a run
        took {each} on average. {count} methods with {RUNS_A_METHOD} runs a task, four rates and three seeds, take
        {hours:.1f} hours, one run at a time."""
    return "## Cost\n\n" + paragraph(words)


BYTES = Measure(LINK_BYTES, "MB that left a worker", lambda run: run.summary.get(LINK_BYTES), 1e-6)
STUDY = Study(
    name="methods",
    question="What does every method reach, and with how many bytes?",
    page=page,
    figures=figures,
    option=Option(name="--rates", help="folder with the runs of the rates tried", output="methods_rates"),
    tune=tune,
)
