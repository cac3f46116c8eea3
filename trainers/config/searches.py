"""Check of Hydra's sweepers that search for the largest objective, such as Optuna's."""

from collections.abc import Mapping
from typing import Any

from trainers.records.goals import objective_of

_OF_HYDRA = "hydra._internal.core_plugins."  # the sweeper that runs all jobs of a grid


def check_search(sweeper: Mapping[str, Any], tracker: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for a search without an objective, and for one that minimises it."""
    if str(sweeper.get("_target_")).startswith(_OF_HYDRA):
        return
    if objective_of(tracker) is None:
        raise ValueError("this sweeper needs an objective: set tracker.objective=METRIC")
    direction = sweeper.get("direction", "maximize")
    if getattr(direction, "name", direction) != "maximize":
        raise ValueError("hydra.sweeper.direction must be maximize, because a larger objective is better")
