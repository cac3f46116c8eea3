"""Refusal of a config: the exception, and conversion of other errors into it."""

from collections.abc import Iterator
from contextlib import contextmanager


class ConfigError(Exception):
    """A run cannot start or continue; the message is one line for the user."""


@contextmanager
def refusing() -> Iterator[None]:
    """Context manager: convert errors that a bad setting raises during construction into ``ConfigError``."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ConfigError(one_line(error)) from error


def one_line(error: BaseException) -> str:
    named = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(named.split()) or type(error).__name__
