"""Checks of dataset and model settings; every error names the setting, the rule and the value."""

import os
from typing import TypeGuard

LARGEST = 3.4028234663852886e38  # largest finite float32
LARGEST_COUNT = 2**31 - 1  # largest int32


def require_flag(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is a bool. A string such as "no" is not."""
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
    """Raise ``ValueError`` if the setting needs ``num_bytes`` and the machine has less memory."""
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > present:
        raise ValueError(
            f"{name}={shown(value)} takes {num_bytes / 2**30:.3g} GiB of memory or more, "
            f"and this machine has {present / 2**30:.3g}"
        )


def is_count(value: object, minimum: int = 1) -> TypeGuard[int]:
    """Whether ``value`` is an int of at least ``minimum``. A bool is not an int here."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is an int or float that is finite as a float32. A bool is not a number here."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def shown(value: object) -> str:
    """``repr(value)``, cut after 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
