"""Measures of a run in a table: quality and cost."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from results.compare.statistics import counted, mean_and_interval, standard_deviation
from results.read.run import Run
from trainers.network_model.break_even import NAME as BREAK_EVEN
from trainers.network_model.break_even import in_words

PERCENT = 100
LINK_BYTES = "comm/link_bytes_sent_total"  # bytes that left a worker, by which methods are compared
HANDED_BYTES = "comm/bytes_sent_total"  # bytes that a worker handed to collectives
EQUAL = 0.1  # the largest difference in bytes, as a share, of methods that are compared without a warning
EQUAL_EPOCHS = 0.05  # the same, of epochs: local steps round a training to whole exchanges
_SPLITS = {
    "test": "test",
    "validation": "validation",
    "average/validation": "averaged weights' validation",
    "average/test": "averaged weights' test",
}
_QUALITIES = {  # metric: label, factor, digits after the point
    "accuracy": ("accuracy, %", PERCENT, 2),
    "perplexity": ("perplexity", 1, 2),
    "hit_rate_at_10": ("hit rate at 10, %", PERCENT, 2),
    "ndcg_at_10": ("NDCG at 10, %", PERCENT, 2),
}


@dataclass(frozen=True)
class Measure:
    """A number of a run, and its form in a table."""

    name: str  # name of the metric, for files
    label: str
    value: Callable[[Run], float | None]  # None if a run does not have it
    factor: float = 1
    digits: int | None = None  # digits after the point, up to 10^7; None: three significant digits
    words: Callable[[Sequence[float]], str] | None = None  # form of values that have no mean

    @classmethod
    def recorded(cls, name: str, label: str, factor: float = 1, digits: int | None = None) -> "Measure":
        """A metric of the summary."""
        return cls(name, label, lambda run: run.summary.get(name), factor, digits)

    def values(self, runs: Sequence[Run]) -> list[float]:
        """The values of the runs that have it, without the factor."""
        return [value for run in runs if (value := self.value(run)) is not None]

    def spread(self, runs: Sequence[Run]) -> str:
        """Mean ± standard deviation; a dash if no run has it.

        The mean alone if there is no deviation: for one run, for two (with their number), for equal values.
        """
        values = [self.factor * value for value in self.values(runs)]
        if not values:
            return "-"
        if self.words is not None:
            return self.words(values)
        mean, deviation = mean_and_interval(values)[0], standard_deviation(values)
        digits = self._digits(mean, deviation or 0)
        if deviation is None:
            return _shown(mean, digits) + (counted(len(values)) if len(values) > 1 else "")
        return f"{_shown(mean, digits)} ± {_shown(deviation, digits)}"

    def difference(self, mean: float, low: float | None, high: float | None, seeds: int) -> str:
        """A difference of two values with its interval, or with the number of seeds if there is none."""
        ends = [self.factor * end for end in (low, high) if end is not None]
        mean *= self.factor
        digits = self._digits(max(map(abs, (mean, *ends))), 0)
        if not ends:
            return f"{_shown(mean, digits, '+')}{counted(seeds)}"
        return f"{_shown(mean, digits, '+')} [{', '.join(_shown(end, digits, '+') for end in ends)}]"

    def _digits(self, size: float, deviation: float) -> int | None:
        """Digits after the point for values of this size; None if a power of ten is clearer."""
        if not size or not math.isfinite(size):
            return self.digits or 0
        order = math.floor(math.log10(float(f"{abs(size):.2e}")))  # 0.9999 is shown as 1.00
        if self.digits is not None and order <= 6:
            return self.digits
        if not -4 <= order <= 6:
            return None
        needed = max(2 - order, 0)
        if deviation and math.isfinite(deviation):  # show at least the first digit of a small deviation
            needed = max(needed, min(-math.floor(math.log10(deviation)), needed + 2))
        return needed


def _shown(value: float, digits: int | None, sign: str = "") -> str:
    return f"{value:{sign}.2e}" if digits is None else f"{value:{sign}.{digits}f}"


def qualities(runs: Sequence[Run]) -> list[Measure]:
    """The quality measures that ``runs`` have; methods are compared by the first."""
    every = [
        Measure.recorded(f"{split}/{name}", f"{said} {label}", factor, digits)
        for split, said in _SPLITS.items()
        for name, (label, factor, digits) in _QUALITIES.items()
    ]
    every.append(Measure.recorded("convex/suboptimality", "f(x) - f*"))
    return [measure for measure in every if measure.values(runs)]


def costs(runs: Sequence[Run]) -> list[Measure]:
    """Density (unless all runs are dense), errors, bytes and compression ratio, if a run has them."""
    found = [
        Measure.recorded("compression/density_mean", "average density, %", PERCENT),
        Measure.recorded("compression/total_error", "total error"),
        Measure.recorded("compression/regret", "regret, %", PERCENT),
        Measure.recorded(LINK_BYTES, "MB that left a worker", 1e-6),
        Measure.recorded(HANDED_BYTES, "MB handed over", 1e-6),
        Measure.recorded("comm/compression_ratio", "compression ratio"),
    ]
    is_dense = all(value == 1 for value in found[0].values(runs))
    return [measure for measure in found[is_dense:] if measure.values(runs)]


def break_even(runs: Sequence[Run]) -> list[Measure]:
    """The link speed below which a run was faster than dense training, if a run has it."""
    found = replace(Measure.recorded(BREAK_EVEN, "faster than dense, link"), words=in_words)
    return [found] if found.values(runs) else []


def unequal_bytes(methods: Mapping[str, Sequence[Run]]) -> str:
    """A warning if methods sent bytes that differ by more than ``EQUAL``; empty if not.

    The bytes are those that left a worker, mean over a method's runs. Dense training does not count.
    """
    sent = {}
    for name, runs in methods.items():
        found = [run.summary[LINK_BYTES] for run in runs if run.summary.get(LINK_BYTES)]
        if found and runs[0].compressor != "none":
            sent[name] = fmean(found)
    least, most = min(sent, key=sent.__getitem__, default=""), max(sent, key=sent.__getitem__, default="")
    if not sent or sent[most] <= (1 + EQUAL) * sent[least]:
        return ""
    return (
        f"the bytes that left a worker differ by more than {EQUAL:.0%}, so methods are not compared at equal "
        f"bytes: from {sent[least] / 1e6:.3g} MB ({least}) to {sent[most] / 1e6:.3g} MB ({most})"
    )


def unequal_training(methods: Mapping[str, Sequence[Run]]) -> str:
    """A warning if runs read their data for different times, by more than ``EQUAL_EPOCHS``; empty if not.

    With ``local=steps``, ``trainer.steps`` counts exchanges, so equal settings are different trainings.
    """
    read = {name: max(run.summary.get("epoch", 0.0) for run in runs) for name, runs in methods.items()}
    least, most = min(read, key=read.__getitem__), max(read, key=read.__getitem__)
    if read[most] <= (1 + EQUAL_EPOCHS) * read[least]:
        return ""
    return (
        f"the runs read the data for {read[least]:.3g} epochs ({least}) to {read[most]:.3g} epochs ({most})"
    )


def require_several_workers(runs: Iterable[Run]) -> None:
    """Raise ``ValueError`` for a run of one worker or node: it sends nothing and has no ratio of bytes."""
    for run in runs:
        sender = "worker" if run.config.get("nodes") is None else "node"
        count = run.config.get(f"{sender}s")
        if count is not None and count < 2:
            raise ValueError(
                f"{run.path}: {sender}s must be at least 2, got {count}: nothing leaves a single {sender}"
            )


def num_parameters(run: Run) -> int | None:
    """D, or None if the summary does not have it."""
    layers = run.summary.get("layers")
    return sum(layer["elements"] for layer in layers.values()) if layers else None
