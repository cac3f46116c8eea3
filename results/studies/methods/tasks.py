"""The tasks that every method is trained on, and the place of a run in the comparison."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from results.compare.measures import require_several_workers
from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import Seeds

PREFIX = "methods_"  # of a run's name: methods_TASK-METHOD
BASELINE = "none"

Methods = dict[str, Seeds]  # by name, then by seed


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


def task_in(name: object) -> str:
    """The word where a run's name has its task, whatever the name."""
    return str(name).removeprefix(PREFIX).partition("-")[0]


def order(name: str) -> tuple[bool, str]:
    """A key for sorting methods: the baseline, then the others by name."""
    return name != BASELINE, name


def task_of(run: Run) -> str:
    """The task's name. Raises ``ValueError`` for a run of another study."""
    name = task_in(run.config["name"])
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
            key=lambda run: order(method_of(run)),
        )
        if own:
            found[task] = by_key(own, method_of)
    return found


def trains(task: str, runs: Sequence[Run]) -> bool:
    """Whether the mean over seeds is better than ``Task.untrained``."""
    values = [run.summary.get(TASKS[task].tuned_by, math.nan) for run in runs]
    mean = statistics.fmean(values)
    return mean > TASKS[task].untrained if TASKS[task].higher_is_better else mean < TASKS[task].untrained
