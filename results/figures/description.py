"""Descriptions of panels, from which both matplotlib and the report's plotly draw."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from results.compare.statistics import mean_and_half
from results.figures.curves import Curve, Quantity, interval, metric, over_seeds, smoothed, steps, window
from results.figures.metrics import MEAN_DENSITY, STEPS, Metric
from results.figures.scales import Scale, scale_of
from results.read.run import Run

Methods = Mapping[str, Sequence[Run]]  # in the order of a legend
CUT = "An interval without a cap at its end reaches beyond the panel."
HOLDS_ZERO = "An interval that reaches the lower end of a logarithmic axis includes zero."


@dataclass(frozen=True)
class Axis:
    """What is shown along it, and how."""

    metric: Metric
    scale: Scale


@dataclass(frozen=True)
class Mark:
    """Means over seeds at the end of a method's runs, in the axes' units; halves are 0 without one."""

    x: float
    x_half: float
    y: float
    y_half: float


@dataclass(frozen=True)
class Panel:
    """Curves or marks, by method."""

    x: Axis
    y: Axis
    curves: dict[str, Curve] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    joined: tuple[tuple[str, ...], ...] = ()  # methods whose marks a line joins, in this order
    notes: tuple[str, ...] = ()


def curves(methods: Methods, x: Metric, y: Metric, most: int) -> Panel:
    """A curve per method, the mean over seeds with its 95 % interval, of at most about ``most`` points."""
    found = {
        method: over_seeds(runs, _quantity(x), _quantity(y), interval, most)
        for method, runs in methods.items()
    }
    notes = _running(methods, y) if y.noisy else []
    every = [curve for curve in found.values() if len(curve.x)]
    x_scale = scale_of(
        [curve.x for curve in every],
        can_be_logarithmic=x.can_be_logarithmic,
        decided_by=[curve.x[-1:] for curve in every],
    )
    y_scale = scale_of(
        [curve.mean for curve in every],
        [curve.low for curve in every],
        [curve.high for curve in every],
        can_be_logarithmic=y.can_be_logarithmic,
        limit=y.limit,
    )
    if y_scale.logarithmic:
        notes += off_the_axis(y, {method: curve.mean for method, curve in found.items()})
        if any(((curve.low <= 0) & (curve.mean > 0)).any() for curve in found.values()):
            notes.append(HOLDS_ZERO)
    return Panel(Axis(x, x_scale), Axis(y, y_scale), curves=found, notes=tuple(notes))


def points(methods: Methods, x: Metric, y: Metric, families: Sequence[Sequence[str]] | None = None) -> Panel:
    """A mark per method at the end of its runs, with 95 % intervals; ``families`` are joined by lines."""
    notes: list[str] = []
    at: dict[str, list[float]] = {method: [] for method in methods}
    scales = []
    for each in (x, y):
        for method, runs in methods.items():
            at[method] += mean_and_half(each.factor * run.summary[each.name] for run in runs)
        mean, half = np.array([pairs[-2:] for pairs in at.values()]).T
        options = {"can_be_logarithmic": each.can_be_logarithmic, "limit": each.limit}
        scale = scale_of([mean], [mean - half], [mean + half], **options)
        scales.append(scale)
        if scale.logarithmic:
            notes += off_the_axis(each, {method: np.array(pairs[-2:-1]) for method, pairs in at.items()})
            notes += [HOLDS_ZERO] if ((mean > 0) & (mean <= half)).any() else []
        elif scale.limits is not None:
            low, high = scale.limits
            notes += [CUT] if ((mean - half < low) | (mean + half > high)).any() else []
    marks = {method: Mark(*numbers) for method, numbers in at.items()}
    joined = tuple(map(tuple, families_of(methods) if families is None else families))
    return Panel(Axis(x, scales[0]), Axis(y, scales[1]), marks=marks, joined=joined, notes=tuple(notes))


def families_of(methods: Methods) -> list[list[str]]:
    """Methods that differ in numbers only, in the order of their average density."""

    def density(method: str) -> float:
        values = [run.summary.get(MEAN_DENSITY.name, math.nan) for run in methods[method]]
        return sum(values) / len(values)

    found: dict[str, list[str]] = {}
    for method, runs in methods.items():
        found.setdefault(runs[0].identity.method.family, []).append(method)
    return [sorted(names, key=density) for names in found.values()]


def off_the_axis(what: Metric, means: dict[str, np.ndarray]) -> list[str]:
    """A note on the methods that have nothing to show on a logarithmic axis."""
    absent = [method for method, mean in means.items() if not (mean > 0).any()]
    notes = [f"{'; '.join(absent)}: {what.title} 0, not on the logarithmic axis."] if absent else []
    if any((mean > 0).any() and (mean <= 0).any() for mean in means.values()):
        notes.append(f"Gaps are where {what.title} is 0, which the logarithmic axis does not show.")
    return notes


def _quantity(what: Metric) -> Quantity:
    if what is STEPS:
        return steps
    quantity = metric(what.name, what.factor)
    return smoothed(quantity) if what.noisy else quantity


def _running(methods: Methods, what: Metric) -> list[str]:
    """A note on the window of the running medians, the longest of them."""
    records = max(len(run.curve(what.name)) for runs in methods.values() for run in runs)
    if window(records) == 1:
        return []
    return [f"Curves of single steps are running medians over {window(records)} of {records:,} records."]


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
