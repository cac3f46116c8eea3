"""Checks of settings, with one form of error: owner, rule and value."""

from collections.abc import Collection
from typing import TypeGuard

KERNELS = ("auto", "reference")  # compiled loops if there are any, or none
LARGEST = 3.4028234663852886e38  # of a float32, the dtype of weights and gradients
LARGEST_COUNT = 2**31 - 1  # of an int32; products of a few counts stay within int64


class MethodError(ValueError):
    """A mistake in a method's class, found when its results or its state are used; one line."""


def require(holds: bool, owner: str, rule: str, value: object) -> None:
    """Raise ``ValueError('<owner> must be <rule>, got <value>')`` unless ``holds``."""
    if not holds:
        raise ValueError(f"{owner} must be {rule}, got {shown(value)}{_limit(value)}")


def shown(value: object) -> str:
    """The value's repr, cut to the length of a line."""
    try:
        text = repr(value)
    except ValueError:  # Python cannot print integers of thousands of digits
        text = "an integer with too many digits to print"
    return text if len(text) <= 200 else f"{text[:200]}..."


def _limit(value: object) -> str:
    """The limit that a number exceeds, if any: the rule alone would not explain this error."""
    if isinstance(value, int) and abs(value) > LARGEST_COUNT:
        return f" (integers go up to {LARGEST_COUNT}, other numbers to {LARGEST:.2g})"
    if isinstance(value, float) and LARGEST < abs(value) < float("inf"):
        return f" (numbers go up to {LARGEST:.2g})"
    return ""


def is_real(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a float or int that is finite in 32 bits; True and False are not numbers here."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= LARGEST  # false for NaN; ints are compared exactly
    )


def is_count(value: object, minimum: int = 1) -> TypeGuard[int]:
    """Whether ``value`` is an int from ``minimum`` to ``LARGEST_COUNT``; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= LARGEST_COUNT


def require_density(owner: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is a density, a share of elements in (0, 1]."""
    require(is_real(value) and 0 < value <= 1, f"{owner}.density", "in (0, 1]", value)


def require_choice(owner: str, choices: Collection[str], value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``choices``."""
    known = isinstance(value, str) and value in choices
    require(known, owner, f"one of {', '.join(choices)}", value)


def require_flag(owner: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is true or false."""
    require(isinstance(value, bool), owner, "true or false", value)
