"""The tables of a report: a row per method, and cells with sort keys.

The numbers are those of ``python -m results table``.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from results.compare.comparison import ComparedMethod, Section, compare
from results.compare.measures import Measure
from results.compare.verdicts import NOT_COMPARABLE
from results.read.matching import warnings
from results.report.facts import Page, Series


@dataclass(frozen=True)
class Cell:
    """A cell: the shown text, the number to sort by, and the tooltip."""

    text: str
    number: float | None = None  # None sorts last; a column with only None is sorted by its texts
    more: str = ""


@dataclass(frozen=True)
class Row:
    """The numbers of one series."""

    label: str
    pages: tuple[Page, ...]  # one link each
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Mean ± standard deviation over seeds; ``columns`` follow those of the method and its seeds."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    facts: tuple[str, ...]  # what was trained
    notes: tuple[str, ...]


def table_of(series: Sequence[Series]) -> Table:
    """The table of one subject, of all its settings."""
    runs = [run for one in series for run in one.runs]
    sections = compare(runs)
    of_run = {id(run): (section, row) for section in sections for row in section.rows for run in row.runs}
    found = [of_run[id(one.runs[0])] for one in series]
    measures = {m.name: m for part in ("qualities", "costs") for s in sections for m in getattr(s, part)}
    columns = [measure.label for measure in measures.values()]
    compared = [section for section in sections if any(row.finding for row in section.rows)]
    if compared:
        columns.append(f"minus {_baseline(compared)} [95 %]")
    has_comparable = any(section.has_comparable for section in sections)
    columns += ["beside the paper"] * has_comparable
    has_asked = any(section.has_asked for section in sections)
    rows = []
    for one, (section, row) in zip(series, found, strict=True):
        cells = [_cell(measure, row) for measure in measures.values()]
        cells = [Cell(row.asked)] * has_asked + cells
        cells += [_difference(section, row)] * bool(compared)
        if has_comparable:
            word = "-" if row.verdict.word == NOT_COMPARABLE else row.verdict.word
            cells.append(Cell(word, more=f"{row.verdict.reason} {row.verdict.published}".strip()))
        rows.append(Row(one.label, one.pages, tuple(cells)))
    on_top = set(warnings(runs))
    notes = [note for section in sections for note in section.notes if note not in on_top]
    if compared:
        quality = compared[0].qualities[0].label
        notes.append(f"differences: of {quality}")
    reasons: dict[str, list[str]] = {}
    for one, (_, row) in zip(series, found, strict=True):
        if row.verdict.word == NOT_COMPARABLE:
            reasons.setdefault(row.verdict.reason, []).append(one.label)
    for reason, labels in reasons.items():
        of = "all rows" if len(labels) == len(rows) else "; ".join(labels)
        notes.append(f"not comparable with the paper, {of}: {reason}")
    facts = dict.fromkeys(fact for section in sections for fact in section.facts)
    return Table(
        (*["asked for"] * has_asked, *columns), tuple(rows), tuple(facts), tuple(dict.fromkeys(notes))
    )


def _baseline(sections: Sequence[Section]) -> str:
    """The baseline of these sections' differences."""
    baselines = {section.baseline for section in sections}
    return str(min(baselines, key=str)) if len(baselines) == 1 else "the baseline"


def _cell(measure: Measure, row: ComparedMethod) -> Cell:
    values = measure.values(row.runs)
    mean = statistics.mean(values) if values and all(map(math.isfinite, values)) else None
    return Cell(measure.spread(row.runs), None if mean is None else measure.factor * mean)


def _difference(section: Section, row: ComparedMethod) -> Cell:
    if section.baseline in (None, row.name):
        return Cell("-")
    quality = section.qualities[0]
    if row.finding is None:
        return Cell(row.difference(quality))
    seeds = f"minus {section.baseline}, seeds {', '.join(map(str, row.common))}"
    return Cell(row.difference(quality), quality.factor * row.finding.difference.mean, seeds)
