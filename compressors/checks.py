"""One way to refuse a setting: say who, the rule and the value."""

import sys


def require(holds: bool, owner: str, rule: str, value: object) -> None:
    """Raise ``ValueError('<owner> must be <rule>, got <value>')`` unless ``holds``."""
    if not holds:
        raise ValueError(f"{owner} must be {rule}, got {value!r}")


def is_real(value: object) -> bool:
    """A finite float, or an int that is one; True and False are not numbers here."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max  # which no NaN is, and an int is compared exactly
    )


def is_count(value: object, minimum: int = 1) -> bool:
    """An int of at least ``minimum``; True and False are not numbers here."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def require_density(owner: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is a density, a share of elements in (0, 1]."""
    require(is_real(value) and 0 < value <= 1, f"{owner}.density", "in (0, 1]", value)


def require_flag(owner: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is true or false."""
    require(isinstance(value, bool), owner, "true or false", value)
