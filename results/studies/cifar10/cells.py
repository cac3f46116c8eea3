"""Measures of the page on CIFAR-10, and the texts of its cells."""

from results.compare.measures import LINK_BYTES, Measure
from results.compare.statistics import Difference, counted, mean_and_interval
from results.studies.cifar10.density import in_epoch
from results.studies.kit import Seeds, paired

NOT_RUN = "no finished run"  # not run yet, or failed


def _measure(name: str, label: str, factor: float = 1, digits: int | None = None) -> Measure:
    return Measure(name, label, lambda run: run.summary.get(name), factor, digits)


ACCURACY = _measure("test/accuracy", "test accuracy, %", 100, 2)
LOSS = _measure("test/loss", "test loss", digits=4)
BYTES = _measure(LINK_BYTES, "MB that left a worker", 1e-6)
COSTS = (
    BYTES,
    _measure("compression/total_error", "total error"),
    _measure("diagnostics/gap", "gap"),
    _measure("compression/regret", "regret, %", 100),
    Measure("density", "density in the first epoch, %", lambda run: in_epoch(run, 1), 100),
    Measure("density", "in the last, %", lambda run: in_epoch(run, -1), 100),
)


def accuracy(own: Seeds, measure: Measure = ACCURACY) -> str:
    """The mean with its interval, "84.20 [83.61, 84.79]", or with the number of seeds if they are too few."""
    values = [measure.factor * value for value in measure.values(list(own.values()))]
    if not values:
        return "-"
    mean, half = mean_and_interval(values)
    digits = measure.digits
    if half is None:
        return f"{mean:.{digits}f}{counted(len(values))}"
    return f"{mean:.{digits}f} [{mean - half:.{digits}f}, {mean + half:.{digits}f}]"


def minus(own: Seeds, other: Seeds | None, measure: Measure = ACCURACY) -> str:
    return shown(paired(measure, own, other), measure) if other else "-"


def shown(difference: Difference | None, measure: Measure = ACCURACY) -> str:
    return measure.difference(*difference) if difference else "-"


def cost(measure: Measure, own: Seeds) -> str:
    return measure.spread(list(own.values()))
