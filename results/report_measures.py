"""The numbers of a report: which metric is a run's quality, and its totals with their units."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from results.runs import Run

SMALL, LARGE = 1e-3, 1e6  # numbers outside are written with an exponent
DENSE_BYTES = 4  # of one element sent without compression


@dataclass(frozen=True)
class Measure:
    """A number of a run as tables and figures show it: ``factor`` times the summary's value."""

    metric: str
    label: str  # with its unit
    factor: float = 1.0
    log: bool = False  # drawn on a logarithmic axis

    def of(self, run: Run) -> float | None:
        value = value_of(run, self.metric)
        return None if value is None else self.factor * value


# In the order of preference: the first that a subject's runs have is its quality
QUALITIES = (
    Measure("test/accuracy", "test accuracy, %", 100),
    Measure("test/perplexity", "test perplexity"),
    Measure("test/hit_rate_at_10", "test hit rate at 10, %", 100),
    Measure("validation/accuracy", "validation accuracy, %", 100),
    Measure("validation/perplexity", "validation perplexity"),
    Measure("validation/hit_rate_at_10", "validation hit rate at 10, %", 100),
    Measure("convex/suboptimality", "suboptimality f(x) - f*", log=True),
    Measure("test/loss", "test loss"),
    Measure("validation/loss", "validation loss"),
    Measure("train/loss", "training loss"),
)
DENSITY = Measure("compression/density_mean", "average density, %", 100, log=True)
TOTAL_ERROR = Measure("compression/total_error", "total error, squared L2", log=True)
BYTES = "comm/bytes_sent_total"
RATIO = Measure("ratio", "compression ratio")
_BYTE_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def value_of(run: Run, metric: str) -> float | None:
    """A number of the run's summary, or None where it has none."""
    if metric == RATIO.metric:
        return compression_ratio(run)
    value = run.summary.get(metric)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def compression_ratio(run: Run) -> float | None:
    """Bytes that 4 per parameter and step make, over the bytes that a worker sent."""
    layers: Any = run.summary.get("layers")
    steps, sent = value_of(run, "step"), value_of(run, BYTES)
    if not isinstance(layers, dict) or not layers or not steps or not sent:
        return None
    return DENSE_BYTES * sum(layer["elements"] for layer in layers.values()) * steps / sent


def quality_of(runs: list[Run]) -> Measure | None:
    """The quality that most runs of a subject have."""
    counts = {q: sum(q.of(run) is not None for run in runs) for q in QUALITIES}
    best = max(counts.values(), default=0)
    return next((quality for quality, count in counts.items() if count == best > 0), None)


def bytes_measure(runs: list[Run]) -> Measure:
    """Bytes sent in the unit that suits the largest of them."""
    largest = max((value_of(run, BYTES) or 0.0 for run in runs), default=0.0)
    unit, size = next(((u, s) for u, s in _BYTE_UNITS if largest >= s), _BYTE_UNITS[-1])
    return Measure(BYTES, f"{unit} sent per worker", 1 / size, log=True)


def shown(values: Sequence[float]) -> str:
    """Mean ± standard deviation with the mean's decimals, four significant digits; of one value, itself."""
    mean = statistics.mean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    largest = max(abs(mean), deviation or 0.0)
    if largest and not SMALL <= largest < LARGE:
        form, deviation_form = ".2e", ".1e"
    else:
        decimals = 0 if mean == 0 else max(0, min(6, 3 - math.floor(math.log10(abs(mean)))))
        form = deviation_form = f",.{decimals}f"
    if deviation is None:
        return f"{mean:{form}}"
    return f"{mean:{form}} ± " + (f"{deviation:{deviation_form}}" if deviation else "0")
