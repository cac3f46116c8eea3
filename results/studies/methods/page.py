"""The page of all methods: tuning, table of quality and bytes, failures and cost."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from results.command import paragraph
from results.compare.measures import LINK_BYTES, Measure, qualities
from results.compare.statistics import WITHOUT_INTERVAL
from results.escaping import Marked, code
from results.read.folders import run_folders
from results.read.run import Run
from results.studies.kit import ROOT, Option, Study, every_run, notes, table
from results.studies.methods.figure import GROUPS, figures, groups_of
from results.studies.methods.tasks import (
    TASKS,
    Methods,
    by_task,
    order,
    rate_of,
    task_in,
    task_of,
    trains,
)
from results.studies.methods.tuning import ends_of, tune
from trainers.files import files as run_files

RUNS_A_METHOD = 7  # per task: four rates, three seeds
INTRODUCTION = """Written by `python -m results study methods` from the runs of `make methods`. Every method
    of `conf/compressor/` has its paper's settings and feedback and, if it has a density, one of 1 %
    (ACCORDION: 0.1 % or 1 %, with a choice after each epoch). `ef21` and `ef21_sgdm` are used with Top-k,
    `diana` with QSGD. Every method had the same tuning budget in each task: four learning rates with seed
    {tuned}, of which the best by {tuned_by} was chosen. The four rates are the same for all methods except
    `signsgd`, whose steps do not depend on the gradient's size. The compared seeds are {seeds}; no rate was
    chosen by them. A rate with * is the lowest or the highest of the four, so a better one may exist."""
READING = """Numbers are mean ± standard deviation over seeds. MB are 10^6 bytes that left a worker over the
    whole training, if each worker had its own machine. The tasks are small and short, so that two cores can
    run all of them. They show the methods in three cases, and reproduce no published number. A warm-up of
    published length, such as DGC's 4 epochs, is a larger share of these tasks than of published trainings."""


def page(runs: Sequence[Run], tried: Sequence[Run]) -> str:
    """Markdown: tuning, table of quality and bytes, methods that do not train, cost."""
    found = by_task(runs)
    tuned_by = "; ".join(f"{TASKS[task].tuned_by} in {task}" for task in found)
    facts = {
        "tuned": ", ".join(map(str, sorted({run.seed for run in tried}))) or "unknown",
        "seeds": ", ".join(map(str, sorted({run.seed for run in runs}))),
        "tuned_by": tuned_by,
    }
    words = [paragraph(INTRODUCTION.format(**facts)), paragraph(READING), _tasks(found)]
    drawn = [f"![Quality over bytes: {GROUPS[name][0]}](methods-{name}.png)\n" for name in groups_of(found)]
    parts = ["# Every method", "", *words, *drawn]
    parts += [_table(found, tried), _without_training(found, tried), _cost(found, [*runs, *tried])]
    return "\n".join([*parts, paragraph(WITHOUT_INTERVAL), notes(runs)])


def _tasks(found: Mapping[str, Methods]) -> str:
    return "\n".join(f"- {task}: {TASKS[task].words}." for task in found) + "\n"


def _table(found: Mapping[str, Methods], tried: Sequence[Run]) -> str:
    """A row per method: quality, bytes and rate in each task."""
    names = list(dict.fromkeys(name for methods in found.values() for name in methods))
    names.sort(key=order)
    head, ends = ["method"], ends_of(tried)
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


def _without_training(found: Mapping[str, Methods], tried: Sequence[Run]) -> str:
    """Each method that does not train on a task, or not with every seed, and the reason."""
    compared = [run for methods in found.values() for run in every_run(methods)]
    failed = failures({run.path.parents[1] for run in (*compared, *tried)})
    known = {path.stem for path in (ROOT / "conf/compressor").glob("*.yaml")}
    known |= {name for methods in found.values() for name in methods} | {name for _, name in failed}
    rows = []
    for task, methods in found.items():
        tuning = {run.seed for run in tried if task_of(run) == task}
        for name in sorted(known):
            own, reasons = list(methods.get(name, {}).values()), failed.get((task, name), [])
            said = [_quality_in_words(task, own)] if own and not trains(task, own) else []
            said += [words for seed, words in reasons if seed not in tuning or not own]
            if said or not own:
                reason = "; ".join(said) or TASKS[task].without.get(name, "not run")
                rows.append([code(name), task, reason])
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
        except run_files.UnreadableFileError:  # running or interrupted
            continue
        if summary["status"] == "finished" or task_in(config["name"]) not in TASKS:
            continue
        words = (
            f"rate {config['optimizer']['lr']:g}, seed {config['seed']}: {summary.get('error', 'no reason')}"
        )
        key = task_in(config["name"]), str(config["budget"]["method"])
        found.setdefault(key, []).append((config["seed"], words))
    return {key: sorted(reasons) for key, reasons in found.items()}


def _quality_in_words(task: str, runs: Sequence[Run]) -> str:
    name = TASKS[task].tuned_by
    quality = Measure(name, name, lambda run: run.summary.get(name)).spread(runs)
    sent = statistics.fmean(run.summary["compression/density_mean"] for run in runs)
    return (
        f"{name} {quality} at rate {rate_of(runs[0]):g}, not better than {TASKS[task].why}; "
        f"{100 * sent:.2g} % of the entries sent"
    )


def _cost(found: Mapping[str, Methods], runs: Sequence[Run]) -> str:
    """The time of all runs, and an estimate for all methods of ``conf/compressor/``."""
    count = max(len(methods) for methods in found.values())
    means = {
        task: statistics.fmean(run.summary["wall_seconds"] for run in runs if task_of(run) == task)
        for task in found
    }
    hours = count * RUNS_A_METHOD * sum(means.values()) / 3600
    each = ", ".join(f"{mean:.0f} s in {task}" for task, mean in means.items())
    taken = sum(run.summary["wall_seconds"] for run in runs) / 3600
    words = f"""{len(runs)} runs, {taken:.1f} hours in all; a run took {each} on average. {count} methods with
        {RUNS_A_METHOD} runs a task, four rates and three seeds, take {hours:.1f} hours, one run at a time."""
    return "## Cost\n\n" + paragraph(words)


BYTES = Measure(LINK_BYTES, "MB that left a worker", lambda run: run.summary.get(LINK_BYTES), 1e-6)
STUDY = Study(
    name="methods",
    question="What does every method reach, and with how many bytes?",
    page=page,
    figures=figures,
    curves=(),
    option=Option(name="--rates", help="folder with the runs of the rates tried", output="methods_rates"),
    tune=tune,
)
