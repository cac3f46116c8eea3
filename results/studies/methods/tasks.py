"""The tasks on which every method is trained, and the task and method of a run."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from results.compare.measures import require_several_workers
from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import Seeds

PREFIX = "methods_"  # of a run's name: methods_TASK-METHOD
BASELINE = "none"

Methods = dict[str, Seeds]  # by name, then by seed


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model and data on which every method is trained."""

    words: str
    tuned_by: str  # metric of the summary by which the learning rate is chosen
    higher_is_better: bool
    untrained: float  # a quality that must be exceeded: a method with this quality counts as not trained
    why: str  # explanation of ``untrained``
    without: Mapping[str, str] = field(default_factory=dict)  # reasons, by method that is not run


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
        without={"accordion": "not run: it would send k_high, because the rate falls at its only choice"},
    ),
    "madelon": Task(
        words="logistic regression on madelon, 20 workers of one row, 3,000 steps, two decreases of the rate",
        tuned_by="convex/suboptimality",
        higher_is_better=False,
        untrained=11.5,
        why="f(x0) - f* = 11.5, where the run begins",
    ),
}


def task_in(name: object) -> str:
    """The part of a run's name that has the task, also for names of other studies."""
    return str(name).removeprefix(PREFIX).partition("-")[0]


def order(name: str) -> tuple[bool, str]:
    """Sort key of methods: the baseline first, then the others by name."""
    return name != BASELINE, name


def task_of(run: Run) -> str:
    """The task's name. Raises ``ValueError`` for a run of another study."""
    name = task_in(run.config["name"])
    if name not in TASKS:
        raise ValueError(f"runs must be named {PREFIX}TASK-METHOD, got {run.config['name']}: {run.path}")
    return name


def method_of(run: Run) -> str:
    """The method's name in the comparison: the compressor or, if a feedback is compared, the feedback."""
    return str(run.config["budget"]["method"])


def rate_of(run: Run) -> float:
    return float(run.config["optimizer"]["lr"])


def by_task(runs: Sequence[Run]) -> dict[str, Methods]:
    """Runs by task, method and seed, in the order of ``TASKS`` and of names, with the baseline first.

    Raises ``ValueError`` for two runs of one task and method that differ in more than their seed, and for
    runs of one worker.
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
