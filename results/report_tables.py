"""The tables of a report: a row per method, cells that know what they sort by."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from results.report_facts import Page, Series
from results.report_measures import (
    DENSITY,
    QUALITIES,
    RATIO,
    TOTAL_ERROR,
    Measure,
    bytes_measure,
    quality_of,
    shown,
)


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number it sorts by; None sorts last."""

    text: str
    number: float | None


@dataclass(frozen=True)
class Row:
    """The numbers of one series."""

    label: str
    pages: tuple[Page, ...]  # a link for each
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Mean ± standard deviation over seeds; columns after the method and its seeds."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def table_of(series: Sequence[Series]) -> Table:
    """The table of one subject."""
    runs = [run for one in series for run in one.runs]
    quality = quality_of(runs)
    measures = [quality] if quality is not None else []
    measures += [q for q in QUALITIES if q != quality and q.metric == "test/loss" and quality is not None]
    measures += [DENSITY, bytes_measure(runs), TOTAL_ERROR, RATIO]
    measures = [m for m in measures if any(m.of(run) is not None for run in runs)]
    rows = tuple(Row(one.label, one.pages, tuple(_cell(one, m) for m in measures)) for one in series)
    return Table(tuple(measure.label for measure in measures), rows)


def _cell(series: Series, measure: Measure) -> Cell:
    values = [value for run in series.runs if (value := measure.of(run)) is not None]
    if not values:
        return Cell("none", None)
    return Cell(shown(values), statistics.mean(values))
