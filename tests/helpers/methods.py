"""Every compressor that conf/compressor offers, with the settings that it is to be tested with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compressors.testing.cases import (
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
    """All yamls, with each of the examples that the method named there gives of itself."""
    return cases_in(CONF)


def named(name: str, settings: Mapping[str, Any]) -> Case:
    """The method of conf/compressor/``name``.yaml."""
    return Case(CONF / "compressor" / f"{name}.yaml", settings)
