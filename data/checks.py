"""Refusing a setting of a dataset or a model: who, the rule and the value."""


def require_flag(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is true or false; "no" from a command line is neither."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


def require_count(name: str, value: object, minimum: int = 1) -> None:
    """Raise ``ValueError`` unless ``value`` is an integer of at least ``minimum``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {value!r}")
