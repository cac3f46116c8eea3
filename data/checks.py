"""Checks of settings of datasets and models, with one form of error: owner, rule and value."""

import os
from typing import TypeGuard

LARGEST = 3.4028234663852886e38  # of a float32
LARGEST_COUNT = 2**31 - 1  # of an int32


def require_flag(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is true or false; "no" from a command line is neither."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {shown(value)}")


def require_count(name: str, value: object, minimum: int = 1, maximum: int = LARGEST_COUNT) -> None:
    """Raise ``ValueError`` unless ``value`` is an integer from ``minimum`` to ``maximum``."""
    if not is_count(value, minimum):
        raise ValueError(f"{name} must be an integer >= {minimum}, got {shown(value)}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {shown(value)}")


def require_share(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is a number in [0, 1)."""
    if not (is_number(value) and 0 <= value < 1):
        raise ValueError(f"{name} must be in [0, 1), got {shown(value)}")


def require_memory(name: str, value: object, num_bytes: int) -> None:
    """Raise ``ValueError`` for a setting that takes at least so many bytes, more than the machine has."""
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > present:
        raise ValueError(
            f"{name}={shown(value)} takes {num_bytes / 2**30:.3g} GiB of memory or more, "
            f"and this machine has {present / 2**30:.3g}"
        )


def is_count(value: object, minimum: int = 1) -> TypeGuard[int]:
    """An int of at least ``minimum``; True and False are not numbers here."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def is_number(value: object) -> TypeGuard[float]:
    """A float that is finite in 32 bits, or an int that is one; True and False are not numbers here."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def shown(value: object) -> str:
    """The value as Python writes it, cut to a line's length."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integers of thousands of digits
        text = "an integer of more digits than can be written"
    return text if len(text) <= 200 else f"{text[:200]}..."
