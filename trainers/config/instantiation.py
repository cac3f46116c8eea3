"""Instantiation of the objects that a config names, by Hydra."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from trainers.config.errors import ConfigError, one_line
from trainers.records.plain import Config

_FAULTS = (ValueError, OSError, TypeError, OverflowError, MemoryError, RuntimeError)  # of a bad setting


def make(settings: Config, **given: object) -> Any:
    """What ``settings`` name by ``_target_``, made of plain values and of what else is ``given``.

    Raises ``ConfigError`` where the factory refuses them.
    """
    try:
        return instantiate(settings, _convert_="all", **given)
    except InstantiationException as error:
        if not isinstance(error.__cause__, _FAULTS):
            raise
        raise ConfigError(one_line(error.__cause__)) from error
