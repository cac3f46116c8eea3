"""Knobs of methods, read in this process instead of one that imports torch first."""

import json
from functools import cache
from unittest.mock import patch

from results.studies.league.methods import Entry, entries_of
from trainers.config.errors import ConfigError
from trainers.config.knobs import knob_of


def answer_here(program: str, question: list) -> object:
    """As ``results.command.answer_of`` of the program for knobs."""
    assert program == "trainers.config.knobs"
    try:
        return [json.loads(_answer(tuple(words), *others)) for words, *others in question]
    except ConfigError as error:
        raise ValueError(str(error)) from error


@cache
def _answer(words: tuple[str, ...], *others: object) -> str:
    return json.dumps(knob_of(list(words), *others))


@cache
def entry_of(name: str, knob: str | None = None) -> Entry:
    with patch("results.compare.knobs.answer_of", answer_here):
        return entries_of([name], knob)[0]
