"""Instantiation of the objects that a config names, by Hydra."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from trainers.config.errors import ConfigError, one_line
from trainers.files.plain import Config
from trainers.names import full_name

_FAULTS = (ValueError, OSError, TypeError, OverflowError, MemoryError, RuntimeError)  # due to bad settings


def make(settings: Config, **given: object) -> Any:
    """The object of the factory ``_target_``, called with the other ``settings`` and with ``given`` objects.

    Raises ``ConfigError`` if the factory refuses them.
    """
    try:
        return instantiate(with_full_names(settings), _convert_="all", **given)
    except InstantiationException as error:
        if not isinstance(error.__cause__, _FAULTS):
            raise
        raise ConfigError(one_line(error.__cause__)) from error


def with_full_names(settings: Any) -> Any:
    """The settings with each ``_target_`` replaced by its import path."""
    if isinstance(settings, list):
        return [with_full_names(entry) for entry in settings]
    if not isinstance(settings, dict):
        return settings
    return {
        key: full_name(value) if key == "_target_" else with_full_names(value)
        for key, value in settings.items()
    }
