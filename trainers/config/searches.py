"""Checks before a sweep: of the agent around it, and of a search such as Optuna's."""

import os
from collections.abc import Mapping
from typing import Any

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
