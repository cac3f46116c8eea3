"""Names and units of metrics on axes, and the metrics of quality."""

from collections.abc import Sequence
from typing import NamedTuple

from results.compare.measures import LINK_BYTES, Measure, qualities
from results.figures.curves import Quantity, epochs, steps
from results.read.run import Run


class Metric(NamedTuple):
    """A metric of a run folder in a figure."""

    name: str
    label: str  # with its unit
    factor: float = 1.0  # from the recorded to the drawn unit
    can_be_logarithmic: bool = True
    noisy: bool = False  # varies from step to step, so a curve is a running median
    limit: float | None = None  # the largest possible value
    short: str = ""  # name in a title; default: the label without its unit
    quantity: Quantity | None = None  # computes the values if it is not a recorded metric
    limits: tuple[float, float] | None = None  # fixed limits of the axis
    from_start: bool = False  # a logarithmic axis of curves begins at the first value of the curves

    @property
    def title(self) -> str:
        return self.short or self.label.split(",")[0]


STEPS = Metric("step", "steps", can_be_logarithmic=False, quantity=steps)
EPOCHS = Metric("epoch", "epochs", can_be_logarithmic=False, quantity=epochs)
BYTES = Metric(LINK_BYTES, "bytes that left a worker, MB", 1e-6, short="bytes on the link")
DENSITY = Metric("compression/density", "density of a step, %", 100, noisy=True)
MEAN_DENSITY = Metric("compression/density_mean", "average density, %", 100, limit=100)
ERROR = Metric("compression/error", "squared error ||e||² of a step", noisy=True, short="error of a step")
TOTAL_ERROR = Metric("compression/total_error", "total error, sum of ||e||² so far")
FINAL_BYTES = BYTES._replace(label="bytes that left a worker over the whole run, MB")
FINAL_TOTAL_ERROR = TOTAL_ERROR._replace(label="total error, sum of ||e||² over the run")
LAYER_DENSITY = Metric("density_mean", "average density, %", 100, limit=100)
LAYER_ERROR = Metric("total_error", "total error, sum of ||e||²")
LOSS = Metric("train/loss", "training loss", noisy=True)
SUBOPTIMALITY = Metric("convex/suboptimality", "suboptimality f(x) - f*", noisy=True, short="suboptimality")

_OTHER_QUALITIES = ("test/loss", "validation/loss")  # if a run has none of the qualities of tables
_HIGHER = ("accuracy", "hit_rate", "ndcg")
_LOWER = ("loss", "perplexity", "suboptimality", "distance", "error")


def of_measure(measure: Measure) -> Metric:
    """A measure of tables as a metric of figures."""
    higher = any(part in measure.name for part in _HIGHER)
    limit = measure.factor if higher else None
    return Metric(measure.name, measure.label, measure.factor, can_be_logarithmic=not higher, limit=limit)


def quality(runs: Sequence[Run], name: str | None = None) -> Metric | None:
    """The quality at the end of a run, with a label that says whether higher or lower is better, if known.

    Without ``name`` it is the first measured quality in the order of tables; None if there is none.
    """
    known = {measure.name: Metric(measure.name, measure.label, measure.factor) for measure in qualities(runs)}
    if SUBOPTIMALITY.name in known:
        known[SUBOPTIMALITY.name] = SUBOPTIMALITY
    others = [each for each in _OTHER_QUALITIES if any(each in run.summary for run in runs)]
    name = name or next(iter([*known, *others]), None)
    if name is None:
        return None
    what = known.get(name, Metric(name, name))
    higher = any(part in name for part in _HIGHER)
    better = "higher" if higher else "lower" if any(part in name for part in _LOWER) else None
    return what._replace(
        label=f"{what.label} at the end" + (f" ({better} is better)" if better else ""),
        short=what.title,
        can_be_logarithmic=not higher,
        limit=what.factor if higher else None,
    )
