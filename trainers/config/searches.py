"""Start of a sweep, with checks of a search such as Optuna's; the objective of a job."""

import os
import sys
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from trainers.config.errors import ConfigError, one_line
from trainers.files.files import read_summary
from trainers.files.goals import objective_of
from trainers.launch.jobs import start_sweep
from trainers.launch.parallel import ask_when_stopped, raise_when_stopped

_OF_HYDRA = "hydra._internal.core_plugins."  # the sweeper that runs all jobs of a grid


class StartOfSweep(Callback):
    """Hydra's callback at the start of a sweep: checks its search, makes the folder for reports of jobs."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        try:
            check_search(config.hydra.sweeper, config.get("tracker") or {})
            jobs = start_sweep(Path(config.hydra.sweep.dir))
            if "JoblibLauncher" in config.hydra.launcher.get("_target_", ""):
                ask_when_stopped(jobs)
            else:
                raise_when_stopped()
        except (OSError, ValueError) as error:  # Hydra turns what a callback raises into a warning
            print(f"error: {one_line(error)}", file=sys.stderr)
            sys.exit(1)  # before Hydra writes to the sweep's folder


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
