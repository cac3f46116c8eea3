"""Published numbers and settings, from paper.yaml."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class Problem(NamedTuple):
    """One of the logistic regressions, with printed values."""

    smoothness: float  # L
    start_value: float  # f(x0)
    optimum_value: float  # f*


class Value(NamedTuple):
    """One number of the paper to compare with a run's number."""

    quantity: str
    metric: str  # our metric
    at: str  # point of the training: start, peak or end
    published: float
    source: str  # read (from a figure), printed, or by rule (follows from the settings)
    within: float  # accepted factor, in both directions


class ErrorCurve(NamedTuple):
    """A method of the convex experiments with figures in the paper."""

    experiment: str
    compressor: str
    settings: dict[str, float]
    data: str
    workers: int
    batch_size: int | None
    steps: int
    values: tuple[Value, ...]
    missing: tuple[str, ...]  # quantities in its figures from which no value was read


class Training(NamedTuple):
    """The settings of one of the networks, and its size in the released code."""

    title: str
    model: str
    data: str
    num_parameters: int  # D
    workers: int
    batch_size: int  # per worker
    epochs: int
    lr: float  # before warm-up
    density: float = 0.001  # of Top-k; lambda is derived from it
    chosen_threshold: float | None = None  # lambda, if it was picked by hand
    printed_parameters: int | None = None  # D of the published table, if it is that of another network

    @property
    def expected_elements(self) -> int:
        """k, per iteration."""
        return round(self.density * self.num_parameters)

    @property
    def threshold(self) -> float:
        """lambda, by the rule 1 / (2 sqrt(k)) unless it was picked by hand."""
        if self.chosen_threshold is not None:
            return self.chosen_threshold
        return 1 / (2 * math.sqrt(self.density * self.num_parameters))


_TOLD: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OFFSETS: dict[str, float] = {name: words.pop("offset") for name, words in _TOLD["problems"].items()}
PROBLEMS = {name: Problem(**words) for name, words in _TOLD["problems"].items()}
READ, ABOUT, EXACT = (
    1.26,
    3.0,
    1 + 1e-6,
)  # accepted factors: a tenth of a decade on a figure's axis; a value read as "about"; all printed digits


def _curve(experiment: str, compressor: str, settings: dict[str, float], **words: Any) -> ErrorCurve:
    of = _TOLD["experiments"][experiment]
    missing = [] if "error" in words else ["mean ‖e‖²"]
    missing += ["f(x) - f* after the start", "‖x - x*‖² after the start"]
    missing += [] if "kept" in words else ["bits per worker of the threshold"]
    values = tuple(_values(of["data"], of["steps"], **words))
    return ErrorCurve(experiment, compressor, settings, **of, values=values, missing=tuple(missing))


def _values(
    data: str,
    steps: int,
    *,
    error: tuple[float, float] | None = None,
    end_is_about: bool = False,
    kept: int = 0,
) -> Iterator[Value]:
    """The values known of a curve.

    f(x0) - f* follows from printed values, ||x0 - x*||^2 from x0 = x* + offset; the paper counts 32 bits for
    every value that a worker keeps.
    """
    if error is not None:
        of = ("mean ‖e‖²", "compression/error")
        yield Value(*of, "peak", error[0], "read", READ)
        yield Value(*of, "end", error[1], "read", ABOUT if end_is_about else READ)
    above = PROBLEMS[data].start_value - PROBLEMS[data].optimum_value
    squared = _TOLD["features"] * OFFSETS[data] ** 2
    yield Value("f(x) - f*", "convex/suboptimality", "start", above, "printed", EXACT)
    yield Value("‖x - x*‖²", "convex/distance_squared", "start", squared, "by rule", EXACT)
    if kept:
        bits = 32.0 * kept * steps
        yield Value("bits per worker", "comm/paper_bits_total", "end", bits, "by rule", EXACT)


ERROR_CURVES = tuple(_curve(**words) for words in _TOLD["curves"])
TRAININGS = tuple(Training(**words) for words in _TOLD["trainings"])
