"""Comparisons of a study's page: effects by seed, kinds, margins and verdicts (docs/statistics.md)."""

import re
import statistics
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from results.compare.measures import Measure
from results.compare.statistics import Difference, Finding, findings
from results.escaping import in_markdown
from results.header import ranges
from results.studies.kit import Seeds, paired, values_of

PRIMARY, EXPLORATORY = "primary", "exploratory"
_JUDGEMENT = "difference [95 %] | verdict | adjusted p | as good"
COLUMNS = f"kind | {_JUDGEMENT}"  # of a table of comparisons


@dataclass(frozen=True, kw_only=True)
class Look:
    """A comparison of a page, one method minus another one, and what is said of it."""

    one: str
    other: str
    difference: Difference  # without the measure's factor
    shown: str  # the difference and its own interval, in the unit of the page
    ends: Hashable  # of the runs; equal runs have equal ones
    margin: float | None = None  # in the unit of the difference
    within: str = ""  # the margin in words
    kind: str = EXPLORATORY
    finding: Finding | None = None
    new: "Look | None" = None  # of a primary comparison: without the seeds that were known when it was named

    @property
    def cells(self) -> str:
        """The cells of ``COLUMNS``."""
        return f"{self.kind} | {self.judgement}"

    @property
    def judgement(self) -> str:
        assert self.finding is not None
        p, equal = self.finding.p, self.finding.p_of_equivalence
        cells = [self.shown, self.finding.word(), "-" if p is None else f"{p:.2g}"]
        good = f"within {self.within}, p {equal:.2g}" if self.finding.is_equivalent else "not shown"
        cells.append("-" if equal is None else good)
        return " | ".join(cells)


def look(
    told: Mapping[str, Any], measure: Measure, one: str, other: str, ours: Seeds, theirs: Seeds
) -> Look | None:
    """The comparison of two methods by their runs; None without a common seed.

    Raises ``ValueError`` for a margin of another form than "1 point" or "1 %".
    """
    if (found := paired(measure, ours, theirs)) is None:
        return None
    within, margin = told.get("margin", {}).get(measure.name, ""), None
    if within:
        number = re.fullmatch(r"([\d.]+) (%|points?)", str(within))
        if not number:
            raise ValueError(f"margin of {measure.name} must be like '1 point' or '1 %', got {within!r}")
        percent = statistics.fmean(value for _, value in values_of(measure, ours, theirs)) / 100
        margin = float(number[1]) * (percent if number[2] == "%" else 1 / measure.factor)
    ends = tuple(
        (seed, measure.value(run), run.summary.get("compression/total_error"))
        for runs in (ours, theirs)
        for seed, run in sorted(runs.items())
    )
    new = None
    seeds = ours.keys() & theirs.keys()
    later = {seed for seed in seeds if seed >= _primary(told).get((one, other), 0)}
    if later and later != seeds:
        ours, theirs = ({seed: runs[seed] for seed in later} for runs in (ours, theirs))
        label = f"{other}, seeds {ranges(sorted(later))}"
        new = look({**told, "primary": ()}, measure, one, label, ours, theirs)
    return Look(
        one=one,
        other=other,
        difference=found,
        shown=measure.difference(*found),
        ends=ends,
        margin=margin,
        within=within,
        new=new,
    )


def _primary(told: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The primary comparisons, each with the first seed that was not known when it was named.

    Raises ``ValueError`` for one of another form than [one, other] or [one, other, 3].
    """
    found = {}
    for pair in told.get("primary", ()):
        match pair:
            case [str(one), str(other), *first] if [type(each) for each in first] in ([], [int]):
                found[one, other] = sum(first)
            case _:
                raise ValueError(
                    f"primary comparisons must be like [one, other] or [one, other, 3], got {pair}"
                )
    return found


def judged(told: Mapping[str, Any], found: Iterable[Look | None]) -> list[Look]:
    """The primary comparisons, then the others, each with its finding among those of its kind.

    Equal runs, as of two scopes in which a method selects the same, are compared once. A primary comparison
    without runs is named on standard error.
    """
    given = [each for each in found if each]
    for one, other in _primary(told).keys() - {(each.one, each.other) for each in given}:
        print(f"warning: no runs for the primary comparison {one} minus {other}", file=sys.stderr)
    kinds: dict[str, dict[Hashable, Look]] = {PRIMARY: {}, EXPLORATORY: {}}
    for each in given:
        kind = PRIMARY if (each.one, each.other) in _primary(told) else EXPLORATORY
        kinds[kind].setdefault(each.ends, each)
    for ends in kinds[PRIMARY]:
        kinds[EXPLORATORY].pop(ends, None)
    return [
        replace(each, kind=kind, finding=finding, new=each.new and replace(each.new, finding=of_new))
        for kind, own in kinds.items()
        for each, finding, of_new in zip(
            own.values(),
            _findings(own.values()),
            _findings(each.new or each for each in own.values()),
            strict=True,
        )
    ]


def _findings(found: Iterable[Look]) -> list[Finding]:
    return findings([(each.difference, each.margin) for each in found])


def looks(told: Mapping[str, Any], methods: Mapping[str, Seeds], measure: Measure) -> list[Look]:
    """The comparisons of study.yaml for which there is a common seed.

    Raises ``ValueError`` for a comparison of a method that study.yaml does not have.
    """
    others = [tuple(pair) for pair in told.get("comparisons", ())]
    if wrong := [list(pair) for pair in others if len(pair) != 2]:
        raise ValueError(f"comparisons must be like [one, other], got {wrong[0]}")
    pairs = [*_primary(told), *others]
    if unknown := {label for pair in pairs for label in pair} - told["methods"].keys():
        raise ValueError(
            f"comparisons must be of {', '.join(told['methods'])}, got {', '.join(sorted(unknown))}"
        )
    return judged(
        told,
        [
            look(told, measure, one, other, methods[one], methods[other])
            for one, other in pairs
            if one in methods and other in methods
        ],
    )


def comparisons(found: Sequence[Look]) -> str:
    """A table of comparisons and the sentence on its verdicts; empty without any."""
    if not found:
        return ""
    rows = [f"{_label(each)} | {each.cells} |" for each in found]
    lines = [f"| comparison | {COLUMNS} |", "|---|---|---:|---|---:|---|", *rows, "", verdicts(found)]
    return "\n".join([*lines, "", new_seeds(found)]).rstrip("\n")


def new_seeds(found: Sequence[Look]) -> str:
    """A table of the primary comparisons without the seeds that were known; empty without such seeds."""
    rows = [f"{_label(each.new)} | {each.new.judgement} |" for each in found if each.new]
    if not rows:
        return ""
    said = "The first seeds were known when these comparisons were named or seeds were added. Without them:"
    return "\n".join([said, "", f"| comparison | {_JUDGEMENT} |", "|---|---:|---|---:|---|", *rows])


def _label(look: Look) -> str:
    return f"| {in_markdown(f'{look.one} minus {look.other}')}"


def verdicts(found: Sequence[Look]) -> str:
    """The sentence on the verdicts of a page's comparisons."""
    numbers = {each.kind: each.finding.together for each in found if each.finding}
    several = " and among ".join(f"{number} {kind}" for kind, number in numbers.items() if number > 1)
    adjusted = f"p is adjusted among {several} comparisons (Holm)" if several else ""
    single = [
        f"the p of the one {kind} comparison needs no adjustment" for kind in numbers if numbers[kind] == 1
    ]
    margins = " or ".join(dict.fromkeys(each.within for each in found if each.within))
    return (
        f"Intervals are single ones of 95 %, {', '.join(filter(None, [adjusted, *single]))}"
        f"{f', and as good is within {margins}' if margins else ''}: "
        "[what the verdicts mean](../../../docs/statistics.md)."
    )
