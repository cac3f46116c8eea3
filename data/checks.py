"""Refusing a setting of a dataset or a model: who, the rule and the value."""


def require_flag(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is true or false; "no" from a command line is neither."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
