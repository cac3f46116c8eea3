"""The league beyond the engine: its trainings, ranks, predicted times and empty cells."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from results.compare.knobs import TOLERANCE
from results.compare.measures import LINK_BYTES, Measure, unequal_bytes
from results.compare.statistics import mean_and_interval
from results.read.run import Run
from results.studies.kit import Seeds, by_name, first_of
from results.studies.league import options as training
from results.studies.league import scores, tasks
from results.studies.league.empty_cells import NOT_RUN, empty_cells, trials_beside
from results.studies.league.explorer import data
from results.studies.league.trials import foreign_settings, trial_of

__all__ = ["data", "names", "training"]
OTHER_BYTES = 0.1  # differences in bytes between seeds that are said, as a share
COMPRESSION = Measure("compression_ms", "compression, ms", scores.compression_seconds, 1e3)


def names(runs: Sequence[Run], tried: Sequence[Run]) -> dict[str, Any]:
    """The names of the template; ``tried`` are pilots and runs with the rates tried."""
    every = [*runs, *tried]
    found = scores.task_runs(runs)
    trials = [trial_of(run.config) for run in runs]
    ended = trials_beside(every)
    cells = empty_cells(found, ended)
    entered, not_run = {trial.method for trial in ended}, dict[str, list[str]]()  # methods by task
    for method, task, _, why in cells:
        if why == NOT_RUN and method in entered:
            not_run.setdefault(task, []).append(method)
    ranked = [one for one in found if one.task not in not_run]
    foreign = [foreign_settings(run.config, run.environment.get("overrides") or []) for run in every]

    def with_other_bytes(own: Seeds) -> list[Run]:
        """The run of a setting with the tuning seed, if it sent other bytes than those of the other seeds."""
        trial = replace(trial_of(first_of(own).config), seed=tasks.TUNING_SEED)
        alike = (run for run in tried if replace(trial_of(run.config), share=trial.share) == trial)
        here = scores.mean_bytes_sent(own)
        return [run for run in alike if abs(here / run.summary[LINK_BYTES] - 1) > OTHER_BYTES][:1]

    constants: dict[str, Any] = {
        "SHARES": tasks.SHARES,
        "TASKS": tasks.TASKS,
        "TUNING_SEED": tasks.TUNING_SEED,
        "FURTHER_RATES": tasks.FURTHER_RATES,
        "LINK_RATES": scores.LINK_RATES,
        "TOLERANCE": TOLERANCE,
    }
    functions = by_name(by_mean_quality, relative_rank, with_other_bytes, scores.mean_bytes_sent)
    functions |= by_name(scores.ranks, scores.seconds_to_quality, scores.target_quality)
    return (
        constants
        | functions
        | {
            "found": found,
            "without_knob": sorted({each.method for each in trials if each.share is None} - {tasks.BASELINE}),
            "foreign": Counter(word for words in foreign for word in words),
            "ranked": ranked,
            "relative_ranks": scores.all_relative_ranks(ranked),
            "both": [
                (one, share, methods["hard_threshold"], methods["top_k"])
                for one in found
                for share, methods in one.by_share.items()
                if "hard_threshold" in methods and "top_k" in methods
            ],
            "empty_cells": [cell for cell in cells if cell[0] not in not_run.get(cell[1], ())],
            "not_run": not_run,
            "has_end_rate": lambda own: trial_of(first_of(own).config).has_end_rate(ended),
            "num_tried": len(tried),
            "hours": sum(run.summary["wall_seconds"] for run in every) / 3600,
            "trial_of": lambda own: trial_of(first_of(own).config),
            "compression": lambda own: COMPRESSION.spread(list(own.values())),
            "unequal_bytes": lambda methods: unequal_bytes(
                {name: list(own.values()) for name, own in methods.items()}
            ),
        }
    )


def by_mean_quality(task: str, methods: Mapping[str, Seeds]) -> list[str]:
    """The methods in the order of their mean quality, the best first."""
    return sorted(
        methods, key=lambda name: fmean(scores.rank_key(task, run) for run in methods[name].values())
    )


def relative_rank(values: Sequence[float] | None) -> str:
    if not values:
        return "-"
    mean, half = mean_and_interval(values)
    return f"{mean:.2f}" if half is None else f"{mean:.2f} [{max(0.0, mean - half):.2f}, {mean + half:.2f}]"
