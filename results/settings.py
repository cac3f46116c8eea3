"""Nested settings as flat ones, and what tells several of them apart."""

import json
from collections.abc import Sequence
from typing import Any


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"trainer": {"epochs": 3}}`` as ``{"trainer.epochs": 3}``; a list becomes its JSON."""
    flat = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, list) else value
    return flat


def differing(settings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every one of ``settings``, flat, the part that is not the same in all; None where it lacks a key."""
    keys = list(dict.fromkeys(key for one in settings for key in one))
    own = [key for key in keys if len({json.dumps(one.get(key)) for one in settings}) > 1]
    return [{key: one.get(key) for key in own} for one in settings]
