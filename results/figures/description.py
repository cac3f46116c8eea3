"""Descriptions of panels, which both matplotlib and the report's plotly draw."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results.compare.statistics import FEWEST_SEEDS, mean_and_interval
from results.figures.curves import Curve, Quantity, metric, over_seeds, smoothed, window
from results.figures.metrics import BYTES, MEAN_DENSITY, Metric
from results.figures.scales import Scale, scale_of
from results.read.run import Run

Methods = Mapping[str, Sequence[Run]]  # by name, in the order of a legend
Ends = tuple[float, float] | None  # ends of an interval, within the panel
MARKS_PER_CURVE = 6
MOST_MARKS = 30  # of all curves of a panel
CUT = "A pale bar that ends at a panel's edge goes on beyond it."
HOLDS_ZERO = "A pale bar that reaches the lower end of a logarithmic axis includes zero."


@dataclass(frozen=True)
class Axis:
    """An axis: its metric, scale and ticks."""

    label: str
    scale: Scale
    places: tuple[tuple[float, str], ...] = ()  # ticks with labels, if they do not follow from the scale


@dataclass(frozen=True)
class Mark:
    """A mark: single seeds, their mean, and the 95 % interval of the mean along each axis."""

    x: float
    y: float
    seeds: np.ndarray  # [seeds, 2]
    x_interval: Ends
    y_interval: Ends


@dataclass(frozen=True)
class Line:
    """A line in the style of its name, with marks at some of its points."""

    name: str
    x: np.ndarray  # [points]
    y: np.ndarray  # [points]; NaN where there is a gap
    marked: tuple[int, ...] = ()  # points with a mark
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Lines over two axes."""

    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    joined: tuple[tuple[str, ...], ...] = ()  # names of single marks that a thin line connects, in order
    across: tuple[tuple[str, float], ...] = ()  # thin horizontal lines: name, which has a style, and height
    has_rows: bool = False  # each y is a row with a name: marks alone, since no line leads from row to row
    title: str = ""
    notes: tuple[str, ...] = ()
    equal: tuple[str, ...] = ()  # titles of metrics without an interval: each seed has the same value


def notes_of(panels: Iterable[Panel]) -> list[str]:
    """The notes of several panels, each once."""
    panels = list(panels)
    equal = list(dict.fromkeys(title for panel in panels for title in panel.equal))
    notes = list(dict.fromkeys(note for panel in panels for note in panel.notes))
    if equal:
        listed = " and ".join(filter(None, [", ".join(equal[:-1]), equal[-1]]))
        verb = "is" if len(equal) == 1 else "are"
        notes.append(f"No interval of {listed}, which {verb} the same in every seed.")
    return notes


def curves(methods: Methods, x: Metric, y: Metric, most: int) -> Panel:
    """A curve per method, its mean over seeds, with at most about ``most`` points.

    Some points have marks, which show the seeds and the 95 % interval of the mean.
    """
    found = {method: over_seeds(runs, _quantity(x), _quantity(y), most) for method, runs in methods.items()}
    drawn = {method: curve for method, curve in found.items() if len(curve.x)}
    x_scale = scale_of(
        [curve.x for curve in drawn.values()],
        can_be_logarithmic=x.can_be_logarithmic,
        decided_by=None if x.from_start else [curve.x[-1:] for curve in drawn.values()],
    )
    marked = {
        method: marked_points(
            curve, x_scale, number / len(drawn), min(MARKS_PER_CURVE, MOST_MARKS // len(drawn))
        )
        for number, (method, curve) in enumerate(drawn.items())
    }
    seeds = {
        method: [
            np.column_stack([np.full(curve.seeds.shape[1], curve.x[i]), curve.seeds[i]])
            for i in marked[method]
        ]
        for method, curve in drawn.items()
    }
    y_scale = _scale(y, seeds, 1, [curve.mean for curve in drawn.values()])
    lines = tuple(
        Line(
            method,
            curve.x,
            _shown(curve.mean, y_scale),
            marked[method],
            tuple(_mark(each, x_scale, y_scale) for each in seeds[method]),
        )
        for method, curve in drawn.items()
    )
    notes = _running(methods, y) if y.noisy else []
    if x_scale.logarithmic:  # a curve may begin at 0
        notes += _absent(x, {method: curve.x for method, curve in drawn.items()})
    if y_scale.logarithmic:
        notes += off_the_axis(y, {method: curve.mean for method, curve in found.items()})
    on_intervals, equal = _on_intervals(lines, seeds, y, 1, y_scale)
    axes = Axis(x.label, x_scale), Axis(y.label, y_scale)
    return Panel(*axes, lines, notes=(*notes, *on_intervals), equal=equal)


def points(methods: Methods, x: Metric, y: Metric, families: Sequence[Sequence[str]] | None = None) -> Panel:
    """A mark per method for the values at the end of its runs; lines connect the methods of a family."""
    seeds = {
        method: [np.array([[each.factor * run.summary[each.name] for each in (x, y)] for run in runs])]
        for method, runs in methods.items()
    }
    panel = through(seeds, x, y)
    joined = tuple(map(tuple, families_of(methods) if families is None else families))
    is_dense = {method: runs[0].compressor == "none" for method, runs in methods.items()}
    across = tuple((line.name, line.marks[0].y) for line in panel.lines if is_dense[line.name])
    return replace(panel, joined=joined, across=across)


def through(seeds: Mapping[str, Sequence[np.ndarray]], x: Metric, y: Metric) -> Panel:
    """A line per name through its marks; a mark is an array with its seeds, [seeds, 2]."""
    x_scale = _scale(x, seeds, 0)
    y_scale = _scale(y, seeds, 1)
    lines: list[Line] = []
    notes: list[str] = []
    equal: tuple[str, ...] = ()
    for name, of_places in seeds.items():
        marks = tuple(_mark(each, x_scale, y_scale, across_too=True) for each in of_places)
        at = np.array([(mark.x, mark.y) for mark in marks]).reshape(-1, 2)
        shown = np.where(np.isfinite(_shown(at[:, 0], x_scale)), _shown(at[:, 1], y_scale), np.nan)
        lines.append(Line(name, at[:, 0], shown, tuple(range(len(marks))), marks))
    for number, (what, scale) in enumerate(((x, x_scale), (y, y_scale))):
        if scale.logarithmic:
            means = {name: np.array([each[:, number].mean() for each in own]) for name, own in seeds.items()}
            notes += off_the_axis(what, means)
        on_intervals, same = _on_intervals(lines, seeds, what, number, scale)
        notes += on_intervals
        equal += same
    axes = Axis(x.label, x_scale), Axis(y.label, y_scale)
    once = tuple(dict.fromkeys(notes))
    return Panel(*axes, tuple(lines), notes=once, equal=equal)


def interval_of(values: np.ndarray) -> tuple[float, float] | None:
    """The 95 % interval of the mean; None for fewer than three seeds and for equal values."""
    mean, half = mean_and_interval(list(values))
    return None if half is None or not math.isfinite(half) else (mean - half, mean + half)


def marked_points(curve: Curve, scale: Scale, shift: float, number: int) -> tuple[int, ...]:
    """Indices of ``number`` points, or fewer, at even distances along the visible x axis.

    ``shift`` is in units of the distance; a number below 1 counts as 1.
    """
    number = max(1, number)
    if scale.limits is None:
        return ()
    ahead, back = (np.log, np.exp) if scale.logarithmic else (np.positive, np.positive)
    left, right = ahead(scale.limits[0]), ahead(scale.limits[1])
    shares = (np.arange(number) + 0.25 + shift) / (number + 1)
    drawn = np.flatnonzero(np.isfinite(curve.mean) & np.isfinite(curve.x) & (curve.x >= scale.limits[0]))
    if not len(drawn):
        return ()
    last = curve.x[drawn].max()
    places = [place for place in back(left + shares * (right - left)) if place <= last]
    nearest = {int(drawn[np.argmin(np.abs(curve.x[drawn] - place))]) for place in places}
    return tuple(sorted(nearest or {int(drawn[-1])}))


def families_of(methods: Methods) -> list[list[str]]:
    """Groups of methods whose names differ only in numbers, each in the order of average density.

    Methods of one density, as with several numbers of local steps, are in the order of their bytes.
    """

    def means(method: str) -> tuple[float, ...]:
        each = [
            [run.summary.get(of.name, math.nan) for run in methods[method]] for of in (MEAN_DENSITY, BYTES)
        ]
        return tuple(sum(values) / len(values) for values in each)

    found: dict[str, list[str]] = {}
    for method, runs in methods.items():
        found.setdefault(runs[0].identity.method.family, []).append(method)
    return [sorted(names, key=means) for names in found.values()]


def off_the_axis(what: Metric, means: Mapping[str, np.ndarray]) -> list[str]:
    """Notes on the methods without values above 0, and on gaps, on a logarithmic axis."""
    notes = _absent(what, means)
    if any((mean > 0).any() and (mean <= 0).any() for mean in means.values()):
        notes.append(f"Gaps are where {what.title} is 0, which the logarithmic axis does not show.")
    return notes


def _absent(what: Metric, values: Mapping[str, np.ndarray]) -> list[str]:
    """A note on the methods without values above 0, on a logarithmic axis."""
    absent = [method for method, own in values.items() if not (own > 0).any()]
    return [f"{'; '.join(absent)}: {what.title} 0, not on the logarithmic axis."] if absent else []


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _scale(
    what: Metric,
    seeds: Mapping[str, Sequence[np.ndarray]],
    number: int,
    means: Sequence[np.ndarray] | None = None,
) -> Scale:
    """The scale of axis ``number``, 0 or 1, for the means, the seeds and their intervals."""
    if what.limits is not None:
        return Scale(False, what.limits)
    values = [each[:, number] for own in seeds.values() for each in own]
    intervals = [found for each in values if (found := interval_of(each)) is not None]
    lows, highs = np.array(intervals).reshape(-1, 2).T
    if means is None:
        means = [np.array([each.mean() for each in values])]
    can_be_logarithmic = what.can_be_logarithmic
    return scale_of(
        means, [lows], [highs], can_be_logarithmic=can_be_logarithmic, limit=what.limit, shown=values
    )


def _mark(seeds: np.ndarray, x_scale: Scale, y_scale: Scale, across_too: bool = False) -> Mark:
    x, y = seeds.mean(axis=0)
    across = _within(interval_of(seeds[:, 0]), x_scale) if across_too else None
    return Mark(float(x), float(y), seeds, across, _within(interval_of(seeds[:, 1]), y_scale))


def _within(ends: Ends, scale: Scale) -> Ends:
    if ends is None or scale.limits is None:
        return None
    low, high = (float(np.clip(end, min(scale.limits), max(scale.limits))) for end in ends)
    return (low, high) if high > low else None


def _shown(values: np.ndarray, scale: Scale) -> np.ndarray:
    return np.where(values > 0, values, np.nan) if scale.logarithmic else values


def _on_intervals(
    lines: Sequence[Line], seeds: Mapping[str, Sequence[np.ndarray]], what: Metric, number: int, scale: Scale
) -> tuple[list[str], tuple[str, ...]]:
    """Notes on missing and incomplete intervals along axis ``number``, and a panel's ``equal``."""
    values = {line.name: [each[:, number] for each in seeds[line.name]] for line in lines}
    values = {name: own for name, own in values.items() if own}
    if scale.logarithmic:  # ``off_the_axis`` makes the note on methods that are off the axis
        values = {name: own for name, own in values.items() if any((each > 0).any() for each in own)}
    few = [name for name, own in values.items() if len(own[0]) < FEWEST_SEEDS]
    alike = [
        name
        for name, own in values.items()
        if name not in few and all(interval_of(each) is None for each in own)
    ]
    notes: list[str] = []
    if few and number == 1:  # the same seeds along both axes
        notes.append(f"No interval of fewer than three seeds{_listed(few, values)}.")
    equal = (what.title,) if alike and len(alike) == len(values) else ()
    if alike and not equal:
        notes.append(f"No interval of {what.title}, which is the same in every seed: {'; '.join(alike)}.")
    ends = [found for own in values.values() for each in own if (found := interval_of(each)) is not None]
    if scale.limits is None or not ends:
        return notes, equal
    low, high = min(scale.limits), max(scale.limits)
    if scale.logarithmic and any(first <= 0 < last for first, last in ends):
        notes.append(HOLDS_ZERO)
    if any(0 < first < low or last > high or (first < low and not scale.logarithmic) for first, last in ends):
        notes.append(CUT)
    return notes, equal


def _listed(names: Sequence[str], of: Mapping[str, Any]) -> str:
    return "" if len(names) == len(of) else f": {'; '.join(names)}"


def _quantity(what: Metric) -> Quantity:
    quantity = what.quantity or metric(what.name, what.factor)
    return smoothed(quantity) if what.noisy else quantity


def _running(methods: Methods, what: Metric) -> list[str]:
    """A note on the longest window of the running medians."""
    records = max(len(run.curve(what.name)) for runs in methods.values() for run in runs)
    if window(records) == 1:
        return []
    return [f"Curves of single steps are running medians over {window(records)} of {records:,} records."]
