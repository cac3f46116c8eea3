"""Compared runs by task, budget and method: ranks, and predicted times to a quality."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from results.breakeven import cost_of_run
from results.compare.measures import LINK_BYTES
from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import Seeds, first_of
from results.studies.league.knobs import TOLERANCE
from results.studies.league.tasks import BASELINE, SHARES, TASKS
from results.studies.league.trials import trial_of
from trainers.records.rates import bits_per_second
from trainers.records.step_times import Cost, Line, Network, predict

RATES = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s"}  # links of the predictions
LATENCY_SECONDS = 5e-5
HALF = 0.5  # the quality to be reached is that of dense training after this part of its steps

Methods = dict[str, Seeds]


class Standing(NamedTuple):
    """A task: dense training, and at every budget the methods that meet it."""

    task: str
    dense: Seeds
    at: dict[int, Methods]  # by share, without dense training


def standings(runs: Sequence[Run]) -> list[Standing]:
    """The compared ``runs``, for each task that has dense training.

    Raises ``ValueError`` for two runs of a method, budget and seed that differ in more.
    """
    found = []
    for task in TASKS:
        own = by_key(
            [run for run in runs if trial_of(run.config).task == task],
            lambda run: (trial_of(run.config).method, trial_of(run.config).share),
        )
        dense = own.pop((BASELINE, None), None)
        if dense is None:
            continue
        most = sent(dense)
        at: dict[int, Methods] = {share: {} for share in SHARES}
        for (method, share), of_seed in own.items():
            for each in SHARES if share is None else (share,):
                if sent(of_seed) <= (1 + 2 * TOLERANCE) * most / each:
                    at[each][method] = of_seed
        found.append(Standing(task, dense, at))
    return found


def sent(of_seed: Seeds) -> float:
    """Bytes that left a worker, mean over seeds."""
    return statistics.fmean(run.summary[LINK_BYTES] for run in of_seed.values())


def ranks(task: str, methods: Methods) -> dict[str, list[int]]:
    """Each method's rank among the others, 1 the best, in each seed that all of them have."""
    common = set.intersection(*(set(of_seed) for of_seed in methods.values())) if methods else set()
    found: dict[str, list[int]] = {name: [] for name in methods}
    for seed in sorted(common):
        ordered = sorted(methods, key=lambda name: loss(task, methods[name][seed]))
        for name in methods:
            found[name].append(1 + ordered.index(name))
    return found


def loss(task: str, run: Run) -> float:
    """The quality, negated if higher is better: lower for a better run."""
    quality = float(run.summary[TASKS[task].quality])
    return -quality if TASKS[task].higher_is_better else quality


def goal(standing: Standing) -> float:
    """The quality to be reached: of dense training after ``HALF`` of its steps, mean over seeds."""
    values = []
    for run in standing.dense.values():
        curve = run.curve(TASKS[standing.task].quality)
        values.append(float(curve[curve.index <= HALF * run.summary["step"]].iloc[-1]))
    return statistics.fmean(values)


def seconds_to(goal: float, standing: Standing, own: Seeds) -> list[float | None]:
    """Predicted seconds until the goal at each of ``RATES``, median over seeds; None where it is not reached.

    Forward pass, backward pass and update are those of dense training, for all methods.
    """
    steps = [_steps_to(goal, standing.task, run) for run in own.values()]
    if None in steps:
        return [None] * len(RATES)
    workers = first_of(standing.dense).config["workers"]
    compute = statistics.median(cost_of_run(run, workers)[1] for run in standing.dense.values())
    is_dense = own is standing.dense
    costs = [cost_of_run(run, workers)[0] for run in own.values()]
    seconds, gathered = (statistics.median(column) for column in zip(*costs, strict=True))
    cost = Cost("", 0.0, gathered, Line(0.0 if is_dense else seconds), Line(1.0))
    step = [
        predict(cost, compute, workers, Network(bits_per_second(rate), LATENCY_SECONDS)).step
        for rate in RATES
    ]
    return [statistics.median(count for count in steps if count is not None) * each for each in step]


def _steps_to(goal: float, task: str, run: Run) -> int | None:
    """The first recorded step with the goal's quality."""
    curve = run.curve(TASKS[task].quality)
    reached = curve >= goal if TASKS[task].higher_is_better else curve <= goal
    return int(curve.index[reached][0]) if reached.any() else None


def compression_seconds(run: Run) -> float:
    """Of a worker and step: compression and aggregation, without messages; median over the steps."""
    return cost_of_run(run, run.config["workers"])[0][0]


def overall(found: Sequence[Standing], share: int) -> dict[str, list[float]]:
    """By method: in each seed the mean over tasks of its rank / the number of methods there.

    Of tasks that two methods or more meet at this budget, and of methods that meet it on all of these.
    """
    tasks = [one for one in found if len(one.at[share]) > 1]
    parts: dict[str, list[list[float]]] = {}
    for one in tasks:
        for name, own in ranks(one.task, one.at[share]).items():
            parts.setdefault(name, []).append([rank / len(one.at[share]) for rank in own])
    return {
        name: [statistics.fmean(column) for column in zip(*own, strict=False)]
        for name, own in parts.items()
        if len(own) == len(tasks)
    }
