"""Data of the league's interactive page: every compared setting, and the terms of its predicted time.

docs/league.js predicts a step as ``trainers.network_model.step_times.predict`` does.
"""

import shlex
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from results.read.run import Run
from results.report.axes import rounded
from results.studies.kit import Seeds, first_of
from results.studies.league.scores import (
    LATENCY_SECONDS,
    TaskRuns,
    mean_bytes_sent,
    step_cost,
    steps_to_quality,
    target_quality,
    task_runs,
)
from results.studies.league.tasks import TASKS
from results.studies.league.trials import trial_of

OF_ONE_RUN = ("seed", "output")  # overrides that the command for all seeds replaces or leaves out


def data(runs: Sequence[Run], _: Sequence[Run] = ()) -> dict[str, Any]:
    """Latency in seconds and, by name, the tasks with their settings, in JSON's types."""
    return {"latency_seconds": LATENCY_SECONDS, "tasks": {one.task: _task(one) for one in task_runs(runs)}}


def _task(one: TaskRuns) -> dict[str, Any]:
    task, target = TASKS[one.task], target_quality(one)
    return {
        "description": task.description,
        "quality": one.quality.label,
        "higher_is_better": task.higher_is_better,
        "target": rounded(one.quality.factor * target),
        "workers": first_of(one.dense).workers,
        "steps": first_of(one.dense).summary["step"],
        "compute_seconds": rounded(step_cost(one, one.dense)[1]),
        "settings": [_setting(one, own, target) for own in (one.dense, *one.settings)],
    }


def _setting(one: TaskRuns, own: Seeds, target: float) -> dict[str, Any]:
    """Seconds, rounds and bytes are those of a worker and step, also ``step_bytes``, which leave it."""
    trial, workers = trial_of(first_of(own).config), first_of(one.dense).workers
    cost, _ = step_cost(one, own)
    values = [one.quality.factor * value for value in one.quality.values(list(own.values()))]
    return {
        "method": trial.method,
        "setting": f"{trial.short_knob} lr={trial.rate:.4g}".strip(),
        "budget": trial.share,
        "quality": [rounded(value) for value in (fmean(values), min(values), max(values))],
        "spread": one.quality.spread(list(own.values())),
        "sent_bytes": rounded(mean_bytes_sent(own)),
        "compression_seconds": rounded(cost.seconds.at(workers)),
        "rounds": cost.rounds.at(workers),
        "step_bytes": rounded(cost.traffic_bytes(workers)),
        "steps_to_target": steps_to_quality(target, one.task, own),
        "command": command_of(own),
    }


def command_of(own: Seeds) -> str:
    """The command that repeats the runs of all seeds, from the overrides that the first was started with."""
    words = first_of(own).environment.get("overrides") or []
    kept = [word for word in words if word.partition("=")[0] not in OF_ONE_RUN]
    words = ["python", "run.py", "-m", *kept, f"seed={','.join(map(str, sorted(own)))}"]
    return " ".join(f'"{word}"' if "'" in word else shlex.quote(word) for word in words)
