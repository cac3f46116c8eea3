"""Destinations of records beside the run folder, as a config's ``tracker.destinations`` names them."""

import math
import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import NamedTuple

from compressors.core.checks import is_real, shown
from trainers.files.goals import HIGHER_IS_BETTER, LOWER_IS_BETTER, higher_is_better
from trainers.files.plain import Config
from trainers.identity.values import at

REQUIRED, IF_INSTALLED = "required", "if_installed"


class Destination(NamedTuple):
    """The package of a destination, and the extra of this project that installs it."""

    package: str
    name: str
    extra: str

    @property
    def install(self) -> str:
        return f"pip install -e '.[{self.extra}]'"


DESTINATIONS = {
    "wandb": Destination("wandb", "Weights & Biases", "tracking"),
    "tensorboard": Destination("tensorboard", "TensorBoard", "tensorboard"),
}
NONE = "none"
_WANDB_MODES = ("online", "offline", "disabled", "shared", "dryrun", "run")  # of WANDB_MODE


def is_installed(package: str) -> bool:
    """Whether a package is installed; a folder without code, such as ``wandb`` with runs, is no package."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def check_destinations(config: Config) -> None:
    """Raise ``ValueError`` for destinations that are unknown, do not go together, or are not installed."""
    tracker = config["tracker"]
    found = tracker.get("destinations", {})
    rule = f"tracker.destinations must map any of {', '.join(DESTINATIONS)} to {REQUIRED} or {IF_INSTALLED}"
    if not isinstance(found, Mapping):
        raise ValueError(f"{rule}, got {shown(found)}")
    for name, wanted in found.items():
        if name not in (*DESTINATIONS, NONE) or wanted not in (REQUIRED, IF_INSTALLED):
            raise ValueError(f"{rule}, got {shown(name)}: {shown(wanted)}")
    if NONE in found and len(found) > 1:
        others = ", ".join(name for name in found if name != NONE)
        raise ValueError(f"tracker=none cannot be combined with other trackers, got {others}")
    for name, wanted in found.items():
        is_online = name == "wandb" and tracker.get("mode") == "online"
        about = DESTINATIONS.get(name)
        if about is not None and (wanted == REQUIRED or is_online) and not is_installed(about.package):
            setting = f"tracker={name}" if wanted == REQUIRED else "tracker.mode=online"
            raise ValueError(f"{setting} needs {about.name}, which is not installed: {about.install}")
    if "wandb" in found:
        _check_wandb(tracker)
    _check_objective(tracker.get("objective"), tracker.get("byte_budget"))
    keeps = tracker.get("checkpoints", False)
    if not isinstance(keeps, bool):
        raise ValueError(f"tracker.checkpoints must be true or false, got {shown(keeps)}")
    if keeps and not at(config, "checkpoint.at_end"):
        raise ValueError(
            "tracker.checkpoints=true has no effect without checkpoint.at_end=true, which keeps one"
        )


def _check_wandb(tracker: Config) -> None:
    """Refuse what W&B itself would refuse only at the first record."""
    for key in ("project", "entity", "group", "job_type", "notes"):
        value = tracker.get(key)
        if value is not None and not (isinstance(value, str) and value):
            raise ValueError(f"tracker.{key} must be a string or null, got {shown(value)}")
    project, entity, mode, tags = (tracker.get(key) for key in ("project", "entity", "mode", "tags"))
    parts = (project or "total-error").split("/")
    if len(parts) > 2 or "" in parts or set(parts[-1]) & set("\\#?%:"):
        raise ValueError(f"tracker.project must be NAME or ENTITY/NAME, got {shown(project)}")
    if len(parts) == 2 and entity not in (None, parts[0]):
        raise ValueError(f"tracker.project={project} names another entity than tracker.entity={entity}")
    if mode not in (None, "online", "offline"):
        raise ValueError(f"tracker.mode must be online or offline, got {shown(mode)}")
    variable = os.environ.get("WANDB_MODE")
    if mode is None and variable and variable not in _WANDB_MODES:
        raise ValueError(f"WANDB_MODE must be online, offline or disabled, got {shown(variable)}")
    if not isinstance(tags, (list, tuple, type(None))) or not all(isinstance(tag, str) for tag in tags or ()):
        raise ValueError(f"tracker.tags must be a list of words, got {shown(tags)}")


def _check_objective(metric: object, byte_budget: object) -> None:
    if metric is not None and (not isinstance(metric, str) or higher_is_better(metric) is None):
        goals = ", ".join((*HIGHER_IS_BETTER, *LOWER_IS_BETTER))
        rule = f"tracker.objective must be a metric with a goal, SPLIT/NAME with one of {goals}"
        raise ValueError(f"{rule}, got {shown(metric)}")
    if byte_budget is None:
        return
    if metric is None:
        raise ValueError("tracker.byte_budget has no effect without tracker.objective")
    if not is_real(byte_budget) or not 0 < byte_budget < math.inf:
        raise ValueError(f"tracker.byte_budget must be > 0 or null, got {shown(byte_budget)}")
