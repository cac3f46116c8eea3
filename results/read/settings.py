"""Flat forms of nested settings, and their differences."""

import json
from collections.abc import Sequence
from typing import Any

from trainers.identity.identity import DEFAULTS, Identity, Settings, Value, is_number, text


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"trainer": {"epochs": 3}}`` as ``{"trainer.epochs": 3}``; a list becomes its JSON."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, list) else value
    return flat


def differing(settings: Sequence[Settings]) -> list[dict[str, Value]]:
    """For each of ``settings``, the values of the keys that differ between them, sorted by key.

    A missing key has its value in ``DEFAULTS``, or None.
    """
    whole = [dict(one) for one in settings]
    keys = sorted({key for one in whole for key in one})
    own = [key for key in keys if len({repr(one.get(key)) for one in whole}) > 1]
    return [{key: one.get(key, DEFAULTS.get(key)) for key in own} for one in whole]


def differences(one: Identity, other: Identity) -> str:
    """The differences of two runs except their seeds, for example "trainer.epochs 3 and 4"."""
    ours, theirs = differing([tuple(each.settings.items()) for each in (one, other)])
    return "; ".join(f"{key} {text(ours[key])} and {text(theirs[key])}" for key in ours if key != "seed")


def is_told(key: str, value: Value) -> bool:
    """Whether a title names a setting: it is set, to something other than its default."""
    return value is not None and value != DEFAULTS.get(key)


def sortable(value: Value) -> tuple[bool, float, str]:
    """Sort key: numbers by value, before strings."""
    return (False, value, "") if is_number(value) else (True, 0, text(value))
