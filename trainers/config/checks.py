"""Checks of a composed config, before slow modules are imported."""

import os

from compressors.core.checks import KERNELS, is_count, is_real, require, shown
from trainers.config.api_keys import refuse_keys_in
from trainers.config.destinations import check_destinations
from trainers.config.nearest import nearest_settings, question
from trainers.config.targets import GROUPS, check_targets
from trainers.files.plain import Config
from trainers.identity.effects import SINGLE, refuse_without_effect
from trainers.settings import require_nodes

_TEXTS = ("root", "name", "home", "vocabulary")  # of data: files, folders and addresses
_COUNTS = {"seed": (0, 2**63 - 1), "workers": (1, 2**20), "processes": (1, 2**16), "threads": (1, 1024)}
_KEYS = {
    *_COUNTS,
    *GROUPS,
    "budget",
    "device",
    "isolate",
    "kernels",
    "name",
    "nodes",
    "output",
    "resume",
    "scope",
    "timeout_seconds",
}


def check(config: Config) -> None:
    """Raise ``ValueError`` for invalid top-level settings, and for code that a config must not name."""
    refuse_keys_in(config)
    unknown = sorted(map(str, config.keys() - _KEYS))
    if unknown:
        advice = question(nearest_settings(unknown[0], {k: v for k, v in config.items() if k in _KEYS}))
        raise ValueError(f"{unknown[0]!r} has no effect: there is no such setting{advice}")
    check_targets(config)
    if not isinstance(config.get("budget"), dict):
        raise ValueError(f"budget must be a mapping of settings, got {config.get('budget')!r}")
    for key, (minimum, maximum) in _COUNTS.items():
        value = config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ValueError(f"{key} must be an integer >= {minimum}, got {shown(value)}")
        if value > maximum:  # torch crashes if the system cannot start its threads
            raise ValueError(f"{key} must be at most {maximum}, got {shown(value)}")
    choices = {"device": ("auto", "cpu", "cuda"), "scope": ("layer", "global"), "kernels": KERNELS}
    for key, words in choices.items():
        if config.get(key) not in words:
            rule = f"{', '.join(words[:-1])} or {words[-1]}"
            raise ValueError(f"{key} must be {rule}, got {shown(config.get(key))}")
    if not isinstance(config.get("isolate"), bool):
        raise ValueError(f"isolate must be true or false, got {config.get('isolate')!r}")
    timeout = config.get("timeout_seconds")
    if timeout is None or not is_real(timeout) or not 0 < timeout <= 1e6:
        raise ValueError(f"timeout_seconds must be in (0, 1e6], got {shown(timeout)}")
    is_own = config["data"]["_target_"].startswith("data.")  # a package's data check their own settings
    for key in _TEXTS if is_own else ():
        value = config["data"].get(key, "none")
        if not (isinstance(value, str) and value) and not (value is None and key == "vocabulary"):
            raise ValueError(f"data.{key} must be a non-empty string, got {shown(value)}")
    _check_place(config.get("output"), config.get("name"), config.get("resume"))
    check_destinations(config)
    started = int(os.environ.get("WORLD_SIZE", str(config["processes"])))
    if config["processes"] not in (1, started):
        raise ValueError(f"processes={config['processes']}, but the launcher started {started} process(es)")
    if config["workers"] % started:
        raise ValueError(f"workers must be a multiple of processes ({started}), got {config['workers']}")
    nodes = config.get("nodes")
    if nodes is not None:
        require(is_count(nodes), "nodes", "an integer >= 1, or null", nodes)
        require_nodes(nodes, config["workers"], started)


def _check_place(output: object, name: object, resume: object) -> None:
    rules = {"output": "a path", "name": "a path", "resume": "auto, never or the path of a checkpoint"}
    for (key, rule), value in zip(rules.items(), (output, name, resume), strict=True):
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError(f"{key} must be {rule}, got {shown(value)}")
    assert isinstance(name, str)  # checked above
    if "/" in name or "\\" in name or name.startswith("."):  # .multirun and lock files begin with a dot
        raise ValueError(f"name must be the name of one folder, got {shown(name)}")
    if len(os.fsencode(name)) > 200:
        raise ValueError(f"name must have at most 200 bytes, got {len(os.fsencode(name))}")


def refuse_settings_without_effect(config: Config, overrides: set[str], *, in_sweep: bool = False) -> None:
    """Raise ``ValueError`` for a setting on the command line that cannot have an effect."""
    refuse_without_effect(config, overrides)
    if not in_sweep:
        refuse_without_effect(config, overrides, {SINGLE})
