"""Description of a run for trackers: axes and aggregates of metrics, tags, hyperparameters, layers."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainers.files.goals import higher_is_better
from trainers.files.plain import Config
from trainers.identity.identity import flatten, is_number

_EVALUATIONS = ("test", "validation", "average", "workers_mean")
_TAGS = ("compressor_name", "model_name", "data_name", "preset")  # keys of a run's facts
_LONGEST_TAG, _LONGEST_GROUP = 64, 128  # letters, in W&B


def axis_of(metric: str) -> str:
    """The metric over which this one is shown: evaluations over epochs, all others over steps."""
    return "epoch" if metric.partition("/")[0] in _EVALUATIONS else "step"


def aggregate_of(metric: str) -> str | None:
    """The aggregates of a metric with a goal, as W&B writes them; None for a metric without one."""
    higher = higher_is_better(metric)
    return None if higher is None else "last,max" if higher else "last,min"


def tags_of(facts: Mapping[str, object]) -> list[str]:
    """Method, model, data and preset."""
    found = (facts.get(key) for key in _TAGS)
    return list(dict.fromkeys(str(fact)[:_LONGEST_TAG] for fact in found if fact))


def group_of(subject: str, method: str, identity: str) -> str:
    """The name of a group of seeds; the hash ``identity`` at its end makes it unique if the rest is cut."""
    return f"{subject}, {method}"[: _LONGEST_GROUP - len(identity) - 2] + f", {identity}"


def layers_of(summary: Mapping[str, object]) -> tuple[list[Any], list[Any]]:
    """Columns and rows of a table of the layers, in their order."""
    layers = summary.get("layers")
    if not isinstance(layers, Mapping) or not layers:
        return [], []
    names: Sequence[str] = list(dict.fromkeys(name for layer in layers.values() for name in layer))
    return ["layer", *names], [[key, *(layer.get(n) for n in names)] for key, layer in layers.items()]


def settings_of(config: Config, facts: Mapping[str, object]) -> dict[str, str | int | float | bool]:
    """All settings by dotted key, and the facts, as plain values: lists and null become text."""
    found = {**dict(flatten(config)), **facts}
    plain = {key: value for key, value in found.items() if not key.startswith("tracker.")}
    return {key: v if isinstance(v, (str, int, float, bool)) else str(v) for key, v in plain.items()}


def numbers_of(summary: Mapping[str, object]) -> dict[str, float]:
    """The metrics of a summary."""
    return {key: value for key, value in summary.items() if "/" in key and is_number(value)}
