"""Every compressor of conf/compressor, with the settings for its tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.cases import (
    FEEDBACKS,
    Case,
    cases_in,
    communicator_for,
    gathered,
    is_codec,
    is_exact,
    plan,
    reduce_once,
    segment,
)

__all__ = [
    "CONF",
    "FEEDBACKS",
    "Case",
    "cases",
    "communicator_for",
    "gathered",
    "is_codec",
    "is_exact",
    "named",
    "plan",
    "reduce_once",
    "segment",
]
CONF = Path(__file__).parents[2] / "conf"


def cases() -> list[Case]:
    """All yamls, each with all examples of its method."""
    return cases_in(CONF)


def named(name: str, settings: Mapping[str, Any]) -> Case:
    """The method of conf/compressor/``name``.yaml."""
    return Case(CONF / "compressor" / f"{name}.yaml", settings)
