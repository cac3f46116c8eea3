"""Compared runs by task, budget and method; their ranks, and predicted times until a quality is reached."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from results.compare.knobs import TOLERANCE
from results.compare.measures import LINK_BYTES, Measure, qualities
from results.predicted_steps import cost_of_run, median_alone
from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import Seeds, first_of
from results.studies.league.tasks import BASELINE, SHARES, TASKS
from results.studies.league.trials import outcome_of, trial_of
from trainers.network_model.rates import bits_per_second
from trainers.network_model.step_times import Cost, Line, Network, predict

LINK_RATES = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s"}  # of the predictions
LATENCY_SECONDS = 5e-5
TARGET_AT = 0.5  # the target is dense training's quality, last evaluated up to this share of its steps

Methods = dict[str, Seeds]


class TaskRuns(NamedTuple):
    """The compared runs of a task: dense training, and for every budget the methods that meet it."""

    task: str
    dense: Seeds
    settings: list[Seeds]  # all others, the most bytes first
    by_share: dict[int, Methods]  # by share, without dense training

    @property
    def quality(self) -> Measure:
        """The measure of the task's quality."""
        name = TASKS[self.task].quality
        (measure,) = (each for each in qualities(list(self.dense.values())) if each.name == name)
        return measure


def task_runs(runs: Sequence[Run]) -> list[TaskRuns]:
    """``runs`` by task, for each task that has dense training.

    A method meets a budget if its bytes, mean over the compared seeds, exceed it by at most 2 ``TOLERANCE``.
    Of its settings that meet a budget, also those set for another one, it is compared with the one that sends
    the most bytes. A setting without a finite quality in every seed is left out.
    Raises ``ValueError`` for two runs of one method, budget and seed that differ in another setting.
    """
    found = []
    for task in TASKS:
        own = by_key(
            [run for run in runs if _has_quality(task, run)],
            lambda run: (trial_of(run.config).method, trial_of(run.config).share),
        )
        dense = own.pop((BASELINE, None), None)
        if dense is None:
            continue
        seeds = range(TASKS[task].seeds)
        complete = [
            {seed: of_seed[seed] for seed in seeds} for of_seed in own.values() if {*seeds} <= of_seed.keys()
        ]
        if own and not complete:  # a page without them would replace one that has them
            raise ValueError(f"{task}: no setting has all {len(seeds)} seeds; make league runs the others")
        complete.sort(key=mean_bytes_sent, reverse=True)
        dense_bytes = mean_bytes_sent(dense)
        by_share: dict[int, Methods] = {share: {} for share in SHARES}
        for share, methods in by_share.items():
            for of_seed in complete:
                if mean_bytes_sent(of_seed) <= (1 + 2 * TOLERANCE) * dense_bytes / share:
                    methods.setdefault(trial_of(first_of(of_seed).config).method, of_seed)
        found.append(TaskRuns(task, dense, complete, by_share))
    return found


def _has_quality(task: str, run: Run) -> bool:
    """Whether ``run`` is of ``task`` and ended with a finite quality."""
    return trial_of(run.config).task == task and not outcome_of(task, run.summary).error


def mean_bytes_sent(of_seed: Seeds) -> float:
    """Bytes that left a worker, mean over seeds."""
    return statistics.fmean(run.summary[LINK_BYTES] for run in of_seed.values())


def ranks(task: str, methods: Methods) -> dict[str, list[float]]:
    """By method, its rank in each seed that all methods have; rank 1 is the best, equal runs share a rank."""
    from scipy.stats import rankdata

    if not methods:
        return {}
    common = sorted(set.intersection(*map(set, methods.values())))
    keys = [[rank_key(task, own[seed]) for seed in common] for own in methods.values()]
    return dict(zip(methods, rankdata(keys, axis=0).tolist(), strict=True))


def rank_key(task: str, run: Run) -> float:
    """The quality, negated if higher is better, so that the better run has the lower number."""
    quality = float(run.summary[TASKS[task].quality])
    return -quality if TASKS[task].higher_is_better else quality


def target_quality(of_task: TaskRuns) -> float:
    """Dense training's quality, last evaluated up to ``TARGET_AT`` of its steps; mean over seeds."""
    values = []
    for run in of_task.dense.values():
        curve = run.curve(TASKS[of_task.task].quality)
        values.append(float(curve[curve.index <= TARGET_AT * run.summary["step"]].iloc[-1]))
    return statistics.fmean(values)


def seconds_to_quality(target: float, of_task: TaskRuns, own: Seeds) -> list[float | None]:
    """Predicted seconds until runs reach the quality ``target`` at each of ``LINK_RATES``; median over seeds.

    None if a run does not reach it. Raises ``ValueError`` as ``step_cost`` does.
    """
    steps = steps_to_quality(target, of_task.task, own)
    if steps is None:
        return [None] * len(LINK_RATES)
    cost, compute = step_cost(of_task, own)
    workers = first_of(of_task.dense).workers
    networks = [Network(bits_per_second(rate), LATENCY_SECONDS) for rate in LINK_RATES]
    return [steps * predict(cost, compute, workers, network).step for network in networks]


def step_cost(of_task: TaskRuns, own: Seeds) -> tuple[Cost, float]:
    """The cost of a step, median over seeds, and the seconds of forward pass, backward pass and update.

    These seconds are those of dense training, for all methods. Raises ``ValueError`` if dense training may
    overlap them with the reduction.
    """
    workers = first_of(of_task.dense).workers
    dense = list(of_task.dense.values())
    compute = median_alone(dense, [cost_of_run(run, workers)[1] for run in dense])
    is_dense = own is of_task.dense
    costs = [cost_of_run(run, workers)[0] for run in own.values()]
    seconds, gathered, _ = (statistics.median(column) for column in zip(*costs, strict=True))
    rounds = Line(0.0, 2.0) if is_dense else Line(1.0)  # for all methods, because older runs lack theirs
    return Cost("", 0.0, gathered, Line(0.0 if is_dense else seconds), rounds), compute


def steps_to_quality(target: float, task: str, own: Seeds) -> float | None:
    """Steps until runs reach the quality ``target``, median over seeds; None if a run does not reach it."""
    steps = [_steps_to(target, task, run) for run in own.values()]
    return None if None in steps else statistics.median(count for count in steps if count is not None)


def _steps_to(target: float, task: str, run: Run) -> int | None:
    """The first recorded step with the quality ``target`` or a better one; None if there is none."""
    curve = run.curve(TASKS[task].quality)
    reached = curve >= target if TASKS[task].higher_is_better else curve <= target
    return int(curve.index[reached][0]) if reached.any() else None


def compression_seconds(run: Run) -> float:
    """Seconds of compression and aggregation per worker and step, without messages; median over steps."""
    return cost_of_run(run, run.workers)[0][0]


def all_relative_ranks(of_tasks: Sequence[TaskRuns]) -> dict[str, dict[int, list[float]]]:
    """By method and budget; in the order of the mean at the largest budget that the method meets."""
    found: dict[str, dict[int, list[float]]] = {}
    for share in SHARES:
        for name, own in relative_ranks(of_tasks, share).items():
            found.setdefault(name, {})[share] = own

    def order(name: str) -> tuple[float, str]:
        first = next(iter(found[name].values()))
        return (sum(first) / len(first) if first else 1.0, name)

    return {name: found[name] for name in sorted(found, key=order)}


def relative_ranks(of_tasks: Sequence[TaskRuns], share: int) -> dict[str, list[float]]:
    """By method, for each seed of all tasks: rank / number of methods of a task, mean over tasks.

    Included are tasks on which at least two methods meet this budget, and methods that meet it on all these
    tasks.
    """
    tasks = [one for one in of_tasks if len(one.by_share[share]) > 1]
    parts: dict[str, list[list[float]]] = {}
    for one in tasks:
        for name, own in ranks(one.task, one.by_share[share]).items():
            parts.setdefault(name, []).append([rank / len(one.by_share[share]) for rank in own])
    return {
        name: [statistics.fmean(column) for column in zip(*own, strict=False)]
        for name, own in parts.items()
        if len(own) == len(tasks)
    }
