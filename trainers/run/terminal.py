"""Progress of a run on the terminal."""

import math
import sys
import time
from collections.abc import Mapping
from statistics import fmean
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text

from trainers.files.plain import Record
from trainers.launch.jobs import in_time

Summary = Mapping[str, object]
PLAIN_SECONDS = 10  # least time between two plain lines of training records


_LEVELS = "▁▂▃▄▅▆▇█"
_MOST_POINTS = 40  # of a curve; then each two become their mean


class _Curve:
    """A metric of this session's training records as a row of blocks, each the mean of as many records."""

    def __init__(self, name: str, label: str, form: str) -> None:
        self.name, self.label, self.form = name, label, form
        self.means: list[float] = []
        self.pending: list[float] = []  # values of the next mean
        self.each = 1  # number of records of a mean

    def add(self, value: float) -> None:
        self.pending.append(value)
        if len(self.pending) < self.each:
            return
        self.means.append(fmean(self.pending))
        self.pending.clear()
        if len(self.means) == _MOST_POINTS:
            self.means = [fmean(pair) for pair in zip(self.means[::2], self.means[1::2], strict=True)]
            self.each *= 2

    def row(self) -> Text | None:
        """The blocks from the lowest to the highest mean; None if all are equal."""
        means = list(self.means)  # a copy, because rich draws in a thread of its own
        low, high = min(means, default=0), max(means, default=0)
        if low == high:
            return None
        places = [(value - low) / (high - low) * (len(_LEVELS) - 1) for value in means]
        blocks = "".join(_LEVELS[round(place)] for place in places)
        said = f"{self.label:8}{blocks}  {low:{self.form}} to {high:{self.form}}"
        return Text(said, no_wrap=True, overflow="crop")


class _Line(ProgressColumn):
    """Step, time left, rate and record in one column; a narrow terminal shows only its beginning."""

    def render(self, task: Task) -> Text:
        text = f"step {task.completed:.0f} of {task.total:.0f}"
        if task.time_remaining is not None:
            text += f"  {in_time(task.time_remaining)} left"
        if task.speed:
            text += f"  {task.speed:.3g} steps/s"
        return Text(f"{text}  {task.description}")


class Terminal:
    """A line and small curves that are updated on a terminal; otherwise plain lines, per evaluation and every
    few seconds.

    ``first_step`` is the number of steps of earlier sessions. ``job`` names one of several parallel jobs:
    their lines are plain and begin with this name.
    """

    def __init__(
        self, num_steps: int, stream: TextIO | None = None, *, first_step: int = 0, job: str = ""
    ) -> None:
        self.stream = stream = stream or sys.stdout
        self.num_steps = num_steps
        self.last_line = -float("inf")
        self.held: Record | None = (
            None  # the last step's record, until it is known whether an evaluation follows
        )
        self.printed_step: float = -1  # of the last line
        self.training: Record = {}  # the last record of each kind
        self.evaluation: Record = {}
        self.progress: Progress | None = None
        self.curves: tuple[_Curve, ...] = ()
        self.prefix = f"{job}  " if job else ""
        if stream.isatty() and not job:  # two live lines at once would overwrite each other
            console = Console(file=stream)
            whole = Column(no_wrap=True, overflow="ellipsis")
            columns = (BarColumn(10, table_column=Column(no_wrap=True)), _Line(table_column=whole))
            # The mean speed of the whole session, because records can be minutes apart.
            self.progress = Progress(*columns, console=console, speed_estimate_period=math.inf)
            self.task = self.progress.add_task("starting", total=num_steps, completed=first_step)
            if not console.options.ascii_only:
                self.curves = (
                    _Curve("train/loss", "loss", ".4g"),
                    _Curve("compression/density", "density", ".3%"),
                )
            self.live = Live(get_renderable=self._shown, console=console, refresh_per_second=10)
            self.live.start(refresh=True)

    def log(self, record: Record) -> None:
        if any(name.startswith("autolrs/trial_") for name in record):
            return  # trials are not shown; the rate found by them is
        evaluated = "train/loss" not in record
        if evaluated:
            self.evaluation = record
        else:
            self.training = record
        if self.progress is not None:
            # Without the epoch, so that 80 columns hold the bytes sent.
            shown = _line(self.training | self.evaluation)
            self.progress.update(self.task, completed=record["step"], description=shown)
            for curve in self.curves:
                if not evaluated and curve.name in record:
                    curve.add(record[curve.name])
        elif not evaluated and record["step"] >= self.num_steps:
            self.held = record
        elif evaluated or time.monotonic() - self.last_line > PLAIN_SECONDS:
            self._print(record)

    def finish(self, summary: Summary | None) -> None:
        if self.progress is not None:
            self.live.stop()
        if self.held is not None:
            self._print(self.held)

    def _shown(self) -> Group:
        rows = [row for curve in self.curves if (row := curve.row()) is not None]
        return Group(*rows, self.progress or "")

    def _print(self, record: Record) -> None:
        self.held = None
        self.last_line = time.monotonic()
        values = record if record["step"] == self.printed_step else self.training | record
        self.printed_step = record["step"]
        line = f"step {record['step']}  epoch {record['epoch']:.2f}  {_line(values)}"
        print(f"{self.prefix}{line}", file=self.stream, flush=True)


def in_bytes(number: float) -> str:
    """Bytes in the largest decimal unit, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.4g} TB"


_LINE = (
    ("train/loss", "loss", ".4f"),
    ("comm/link_bytes_sent_total", "sent", "bytes"),
    ("convex/suboptimality", "f(x) - f*", ".3g"),
    ("train/steps_skipped", "steps skipped", "d"),
    ("autolrs/rate", "rate found", ".3g"),
    ("compression/density", "density", ".3%"),
    ("compression/total_error", "total error", ".4g"),
    ("validation/accuracy", "validation accuracy", ".2%"),
    ("validation/perplexity", "validation perplexity", ".2f"),
    ("test/accuracy", "test accuracy", ".2%"),
    ("test/perplexity", "test perplexity", ".2f"),
    ("test/hit_rate_at_10", "test hit rate at 10", ".2%"),
)


def _line(record: Record) -> str:
    parts = []
    for name, label, form in _LINE:
        if name in record:
            value = in_bytes(record[name]) if form == "bytes" else f"{record[name]:{form}}"
            parts.append(f"{label} {value}")
    return "  ".join(parts)
