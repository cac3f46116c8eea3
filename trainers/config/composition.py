"""Composition of configs: from words of the command line to plain, checked values."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import yaml
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from trainers.config import guard, sweep_jobs, words
from trainers.config.checks import check, refuse_settings_without_effect
from trainers.config.errors import ConfigError, one_line, refusing
from trainers.files.plain import Config
from trainers.identity.identity import flatten


def compose(overrides: Sequence[str]) -> Config:
    """The resolved config that ``run.py`` composes of these words; raises ``ConfigError``."""
    return compose_with_references(overrides)[0]


def compose_with_references(overrides: Sequence[str]) -> tuple[Config, Config]:
    """``compose``, and the same config with its references, such as ``${budget.density}``.

    Hydra's global state is restored afterwards. ``guard`` stays installed in this process.
    """
    guard.install()
    setup_globals()  # Hydra's resolvers
    with refusing():
        typed = words.checked(overrides)
        options = [word for word in typed if word.startswith("-")]
        if options:
            raise ValueError(f"compose takes settings, as KEY=VALUE, got {options[0]}")
        loader = guard.GuardedLoader(create_config_search_path(str(guard.CONF)))
        try:
            for override in OverridesParser.create().parse_overrides(typed):
                if override.is_sweep_override():
                    raise ValueError(f"compose takes the settings of one run, got {override.input_line}")
            config = loader.load_configuration("config", typed, RunMode.RUN, from_shell=False)
            with sweep_jobs.interpolating(config):
                with open_dict(config):
                    del config["hydra"]
                references: Any = OmegaConf.to_container(config, resolve=False)
                return resolve(config, typed), references
        except HydraException as error:
            raise ConfigError(hydra_message(error)) from error
        except yaml.YAMLError as error:
            raise ConfigError(one_line(error)) from error


def resolve(config: DictConfig, overrides: Sequence[str], in_sweep: bool = False) -> Config:
    """The config as plain values; raises ``ConfigError``, also for an override without effect."""
    with refusing():
        try:
            resolved: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except RecursionError:
            raise ConfigError("a config must not refer to itself") from None
        except MissingMandatoryValue as error:
            raise ConfigError(f"{error.full_key} must be given, as {error.full_key}=VALUE") from error
        except OmegaConfBaseException as error:
            raise ConfigError(one_line(error)) from error
        check(resolved)
        refuse_settings_without_effect(resolved, keys_of(overrides), in_sweep=in_sweep)
    return resolved


def print_exception(choices: Mapping[str, str | None]) -> None:
    """Print the settings of one method in one experiment, if a file of conf/exception sets them."""
    file = guard.CONF / "exception" / f"{choices.get('exception@_global_')}.yaml"
    if file.is_file() and os.environ.get("RANK", "0") == "0":
        found = flatten(yaml.safe_load(file.read_text(encoding="utf-8")))
        settings = ", ".join(f"{key}={value}" for key, value in found)
        print(f"conf/exception/{file.name} sets {settings}, before the command line", flush=True)


def keys_of(overrides: Sequence[str]) -> set[str]:
    """The settings that these words set."""
    return {override.split("=")[0].lstrip("+~") for override in overrides}


def hydra_message(error: Exception) -> str:
    """An error of Hydra, its plugins or joblib in one line."""
    if isinstance(error, BrokenProcessPool):
        return "a process of the launcher was killed; the same command runs the remaining jobs"
    if not isinstance(error, HydraException):  # Hydra raises many types for malformed overrides and files
        return one_line(error)
    messages = [one_line(e) for e in (error, error.__cause__) if e is not None and str(e)]
    return ": ".join(dict.fromkeys(text.split(" Config search path:")[0] for text in messages))
