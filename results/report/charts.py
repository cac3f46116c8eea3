"""The charts of a Weights & Biases dashboard: a section for each figure of this package."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from results.compare.paper import ERROR_CURVES, TRAININGS
from trainers.network_model.break_even import NAME as BREAK_EVEN

QUALITIES = {
    "test/accuracy": "test accuracy",
    "test/perplexity": "test perplexity",
    "test/hit_rate_at_10": "test hit rate at 10",
    "validation/accuracy": "validation accuracy",
    "validation/perplexity": "validation perplexity",
    "convex/suboptimality": "suboptimality f(x) - f*",
}
BYTES, DENSITY = "comm/link_bytes_sent_total", "compression/density_mean"
ERROR, TOTAL_ERROR = "compression/error", "compression/total_error"
LEFT = "bytes that left a worker"
KINDS = tuple(f"comm/{kind}_bytes_total" for kind in ("values", "indices", "padding", "metadata"))


@dataclass(frozen=True)
class Setting:
    """A key of a run's config, in place of a metric."""

    key: str


Quantity = str | Setting  # a metric or a setting


@dataclass(frozen=True)
class Scatter:
    """Scatter plot with a mark per group: the last value of one quantity against that of another."""

    title: str
    x: Quantity
    y: str
    log_y: bool = False
    log_x: bool = True


@dataclass(frozen=True)
class Lines:
    """Line plot with a line per group: metrics over the steps, or over another metric.

    ``pattern`` is a regular expression for further metrics. ``references`` are values with a level line each.
    """

    title: str
    y: str | tuple[str, ...]
    y_title: str
    x: str = "Step"
    x_title: str = "step"
    log_y: bool = False
    pattern: str | None = None
    references: tuple[float, ...] = ()


@dataclass(frozen=True)
class Bars:
    """Bar chart with a bar per group and metric: their last values."""

    title: str
    metrics: tuple[str, ...]
    x_title: str


@dataclass(frozen=True)
class Layers:
    """Bar chart with a bar per layer, from a column of the table of layers that a run logs."""

    title: str
    column: str


@dataclass(frozen=True)
class Parallel:
    """Parallel coordinates: a line per run through settings and metrics."""

    title: str
    columns: tuple[Quantity, ...]


@dataclass(frozen=True)
class Importance:
    """Importance of the settings of a sweep for a metric."""

    metric: str


@dataclass(frozen=True)
class Text:
    """A panel of Markdown."""

    markdown: str


Chart = Scatter | Lines | Bars | Layers | Parallel | Importance | Text


def sections(qualities: Sequence[str]) -> dict[str, list[Chart]]:
    """The charts by heading, a section for each figure."""
    found: dict[str, list[Chart]] = {
        "Quality against what was sent": list(_cost(qualities)),
        "Over the training": list(_training(qualities)),
        "Total error and norm of the input": [
            Lines("error against steps", ERROR, "squared L2, this step", log_y=True),
            Lines("total error against steps", TOTAL_ERROR, "total error, squared L2", log_y=True),
            Lines("total error against bytes", TOTAL_ERROR, "total error, squared L2", BYTES, LEFT, True),
            Lines("norm of p against steps", "compression/input_norm_squared", "squared L2", log_y=True),
        ],
        "By layer": [
            Layers("total error by layer", "total_error"),
            Layers("average density by layer", "density_mean"),
        ],
        "Bytes by kind": [
            Bars("bytes that a worker handed to collectives", KINDS, "bytes"),
            Lines("indices against steps", KINDS[1], "bytes so far"),
            Lines("compression ratio against steps", "comm/compression_ratio", "ratio, on the link"),
        ],
        "Lambda against k": [
            Scatter("average density against lambda", Setting("threshold"), DENSITY, True),
            Scatter("total error against lambda", Setting("threshold"), TOTAL_ERROR, True),
            Text(paper_thresholds()),
        ],
        "Diagnostics": list(_diagnostics()),
        "Hindsight and regret": [
            Lines(
                "total error and its least value in hindsight",
                (TOTAL_ERROR, "compression/hindsight_error"),
                "squared L2",
                log_y=True,
            ),
            Lines("regret against steps", "compression/regret", "total error over the least, minus 1"),
            Lines(
                "threshold in hindsight against steps",
                "compression/hindsight_threshold",
                "magnitude",
                log_y=True,
            ),
        ],
        "Heterogeneity": list(_across("data.alpha", "alpha of the shards", qualities)),
        "Workers": list(_across("workers", "workers", qualities)),
        "Break-even": [
            Scatter("break-even bits per second against average density", DENSITY, BREAK_EVEN, True),
            Scatter(f"break-even bits per second against {LEFT}", BYTES, BREAK_EVEN, True),
            Lines("time of compression and communication", "time/reduce_seconds", "seconds, this step"),
        ],
        "Sweeps": list(_sweeps(qualities)),
        "Values of the paper": list(_paper()),
    }
    return found


def _cost(qualities: Sequence[str]) -> Iterator[Chart]:
    for metric in qualities:
        label, log = QUALITIES[metric], metric.startswith("convex/")
        yield Scatter(f"{label} against {LEFT}", BYTES, metric, log)
        yield Scatter(f"{label} against average density", DENSITY, metric, log)
        yield Lines(f"{label} over the bytes of the training", metric, label, BYTES, LEFT, log)
    yield Scatter(f"total error against {LEFT}", BYTES, TOTAL_ERROR, True)


def _training(qualities: Sequence[str]) -> Iterator[Chart]:
    for metric in qualities:
        label, log = QUALITIES[metric], metric.startswith("convex/")
        yield Lines(f"{label} against steps", metric, label, log_y=log)
    yield Lines("training loss against steps", "train/loss", "training loss")
    yield Lines("training loss against bytes", "train/loss", "training loss", BYTES, LEFT)
    yield Lines(
        "density against epochs", "compression/density", "elements sent / all", "epoch", "epoch", True
    )
    yield Lines("density against steps", "compression/density", "elements sent / all", log_y=True)
    yield Lines("learning rate against steps", "train/learning_rate", "learning rate")


def _diagnostics() -> Iterator[Chart]:
    yield Lines("xi against steps", "diagnostics/xi", "xi")
    yield Lines("mean wait of the entries sent", "diagnostics/waited_mean", "steps")
    yield Lines("longest wait of an entry", "diagnostics/unsent_longest", "steps")
    yield Lines(
        "selection error against steps", (), "in [0, 1]", pattern=r"^diagnostics/selection_error_\d+$"
    )
    yield Lines("gap against steps", "diagnostics/gap", "squared L2", log_y=True)
    yield Lines("relative gap against steps", "diagnostics/gap_relative", "share", log_y=True)
    yield Lines(
        "error and its bound against steps", (ERROR, "diagnostics/error_bound"), "squared L2", log_y=True
    )


def _across(key: str, label: str, qualities: Sequence[str]) -> Iterator[Chart]:
    """Quality, error and bytes against a setting."""
    for metric in qualities:
        log = metric.startswith("convex/")
        yield Scatter(f"{QUALITIES[metric]} against {label}", Setting(key), metric, log)
    yield Scatter(f"total error against {label}", Setting(key), TOTAL_ERROR, True)
    yield Scatter(f"{LEFT} against {label}", Setting(key), BYTES, True)


def _sweeps(qualities: Sequence[str]) -> Iterator[Chart]:
    settings = ("compressor_name", "threshold", "density", "optimizer.lr")
    for metric in qualities:
        columns: tuple[Quantity, ...] = (*map(Setting, settings), BYTES, TOTAL_ERROR, metric)
        yield Parallel(f"settings, bytes and {QUALITIES[metric]}", columns)
        yield Importance(metric)
    yield Importance(BYTES)


def _paper() -> Iterator[Chart]:
    """The convex experiments with level lines at the paper's values of each metric, and all these values."""
    values = [(curve.experiment, value) for curve in ERROR_CURVES for value in curve.values]
    for name, metric in dict.fromkeys((name, value.metric) for name, value in values):
        own = [value for of, value in values if (of, value.metric) == (name, metric)]
        places = " and ".join(dict.fromkeys(value.at for value in own))
        yield Lines(
            f"{name}: {own[0].quantity} against steps, lines at the paper's {places}",
            metric,
            own[0].quantity,
            log_y=True,
            references=tuple(sorted({value.published for value in own})),
        )
    yield Text(paper_errors())


def paper_thresholds() -> str:
    """The paper's lambda and k of each network, as Markdown."""
    rows = [
        f"| {one.title} | {one.num_parameters:,} | {one.expected_elements:,} | {one.threshold:.4g} |"
        for one in TRAININGS
    ]
    head = ["The paper's networks: lambda = 1 / (2 sqrt(k)).", "", "| network | D | k | lambda |"]
    return "\n".join([*head, "|---|---:|---:|---:|", *rows])


def paper_errors() -> str:
    """The paper's values of the convex experiments, as Markdown."""
    rows = [
        f"| {curve.experiment} | {curve.compressor} | {value.quantity} | {value.at} "
        f"| {value.published:.4g} | {value.source} |"
        for curve in ERROR_CURVES
        for value in curve.values
    ]
    head = "| experiment | method | quantity | at | published | source |"
    return "\n".join(["Values of the paper.", "", head, "|---|---|---|---|---:|---|", *rows])
