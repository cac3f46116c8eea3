"""The interactive figures of a report, as plotly's plain dictionaries."""

from collections.abc import Sequence
from dataclasses import replace

from results.compare.measures import Measure, costs, qualities
from results.report.axes import BYTES, DENSITY, TOTAL_ERROR, Figure
from results.report.facts import Series
from results.report.interactive_curves import curves
from results.report.points import points


def figures_of(series: Sequence[Series]) -> list[Figure]:
    """The figures of one subject, except those without data."""
    runs = [run for one in series for run in one.runs]
    quality = next(iter(qualities(runs)), None)
    cost = {measure.name: measure for measure in costs(runs)}
    if TOTAL_ERROR in cost:
        cost[TOTAL_ERROR] = replace(cost[TOTAL_ERROR], label="total error, squared L2")
    sent, density, error = (cost.get(name) for name in (BYTES, DENSITY, TOTAL_ERROR))
    drawn = [
        points(series, x, y)
        for x, y in ((sent, quality), (density, quality), (sent, error))
        if x is not None and y is not None
    ]
    measures = [
        Measure.recorded("train/loss", "training loss"),
        Measure.recorded("compression/density", "density, %", 100),
    ]
    measures += [measure for measure in (error, quality) if measure is not None]
    drawn += [curves(series, measure) for measure in measures]
    return [figure for figure in drawn if figure is not None]
