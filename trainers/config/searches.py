"""Checks of sweeps: of the agent around one, of a search such as Optuna's; the objective of a job."""

import os
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from trainers.config.errors import ConfigError
from trainers.files.files import read_summary
from trainers.files.goals import objective_of

_OF_HYDRA = "hydra._internal.core_plugins."  # the sweeper that runs all jobs of a grid


def check_search(sweeper: Mapping[str, Any], tracker: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for a sweep inside a trial of a W&B agent, and for a search that has no objective
    or minimises it."""
    if os.environ.get("WANDB_SWEEP_ID"):  # its jobs would all write to the trial's one run
        raise ValueError(
            "an agent of Weights & Biases has started this command, whose trial is one run: omit -m"
        )
    if str(sweeper.get("_target_")).startswith(_OF_HYDRA):
        return
    if objective_of(tracker) is None:
        raise ValueError("this sweeper needs an objective: set tracker.objective=METRIC")
    direction = sweeper.get("direction", "maximize")
    if getattr(direction, "name", direction) != "maximize":
        raise ValueError("hydra.sweeper.direction must be maximize, because a larger objective is better")


def refuse_sweep(sweeper: Mapping[str, Any], typed: Set[str]) -> None:
    """Raise ``ConfigError`` for a file of sweeps/ without ``-m``, unless ``typed`` has its settings."""
    crossed = [key for key in sweeper.get("params") or {} if key.lstrip("+~") not in typed]
    if crossed:
        raise ConfigError(f"this is a sweep over {', '.join(crossed)}: put -m first, or type one value each")


def reached(tracker: Mapping[str, Any], folder: Path) -> float | None:
    """The objective of a finished run, if the settings of its tracker name one."""
    objective = objective_of(tracker)
    return None if objective is None else objective.value(read_summary(folder))
