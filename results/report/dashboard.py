"""A Weights & Biases workspace and report with the figures that this package draws from run folders.

Runs of one method and setting are one group, shown as the mean over their seeds: grouped by the run's
``compressor_name``, ``method``, ``subject`` and ``group``, which the tracker logs beside the nested config.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from results.figures.style import COLOURS
from trainers.records.break_even import NAME as BREAK_EVEN

# Flat config keys that distinguish methods and settings; runs of one group differ only in their seeds. The
# nested ``compressor`` is not used: an agent of a W&B sweep over compressors fixes that key to a string. The
# compressor comes first because W&B gives colours to the outermost groups.
GROUPING = ("compressor_name", "method", "subject", "group")
QUALITIES = {
    "test/accuracy": "test accuracy",
    "test/perplexity": "test perplexity",
    "test/hit_rate_at_10": "test hit rate at 10",
    "validation/accuracy": "validation accuracy",
    "validation/perplexity": "validation perplexity",
    "convex/suboptimality": "suboptimality f(x) - f*",
}
BYTES, DENSITY = "comm/link_bytes_sent_total", "compression/density_mean"
NAME = "Total error"
COLUMNS = 3  # panels per row; a report is 24 units wide


@dataclass(frozen=True)
class Scatter:
    """Scatter plot with a mark per group: the last value of one metric against that of another."""

    title: str
    x: str
    y: str
    log_y: bool = False


@dataclass(frozen=True)
class Lines:
    """Line plot with a line per group: a metric over the steps, or over another metric."""

    title: str
    y: str
    y_title: str
    x: str = "Step"
    x_title: str = "step"
    log_y: bool = False


Chart = Scatter | Lines


def sections(qualities: Sequence[str]) -> dict[str, list[Chart]]:
    """The charts by heading."""
    cost: list[Chart] = []
    steps: list[Chart] = []
    for metric in qualities:
        label, log = QUALITIES[metric], metric.startswith("convex/")
        cost.append(Scatter(f"{label} against bytes that left a worker", BYTES, metric, log))
        cost.append(Scatter(f"{label} against average density", DENSITY, metric, log))
        steps.append(Lines(f"{label} against steps", metric, label, log_y=log))
    error = "total error, squared L2"
    cost.append(
        Scatter("total error against bytes that left a worker", BYTES, "compression/total_error", True)
    )
    cost.append(Scatter("break-even bits per second against average density", DENSITY, BREAK_EVEN, True))
    steps += [
        Lines("training loss against steps", "train/loss", "training loss"),
        Lines(
            "training loss against bytes", "train/loss", "training loss", BYTES, "bytes that left a worker"
        ),
        Lines("density against steps", "compression/density", "elements sent / all", log_y=True),
        Lines("error against steps", "compression/error", "squared L2, this step", log_y=True),
        Lines("total error against steps", "compression/total_error", error, log_y=True),
    ]
    return {"Quality and error against what was sent": cost, "Over the training": steps}


def specification_text(entity: str, project: str, qualities: Sequence[str]) -> str:
    """The specification as JSON."""
    return json.dumps(specification(entity, project, qualities), indent=2) + "\n"


def save(entity: str, project: str, qualities: Sequence[str]) -> Iterator[str]:
    """Create workspace and report on the server; returns their addresses."""
    yield workspace(entity, project, qualities).save().url
    yield report(entity, project, qualities, online=True).save().url


def specification(entity: str, project: str, qualities: Sequence[str]) -> dict[str, Any]:
    """The specification that ``save`` would send; equal for equal arguments."""
    made = {
        "workspace": workspace(entity, project, qualities),
        "report": report(entity, project, qualities, online=False),
    }
    # There is no public function that returns a specification without sending it
    models = {name: one._to_model() for name, one in made.items()}
    return {
        name: model.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, model in models.items()
    }


def workspace(entity: str, project: str, qualities: Sequence[str]) -> Any:
    """A saved view of the project: grouped runs at the left, and the panels."""
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces.expr import Config

    identity = _identities("workspace")
    made = ws.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=[
            ws.Section(
                name=heading,
                panels=[_panel(panel, identity) for panel in panels],
                is_open=True,
                layout_settings=ws.SectionLayoutSettings(columns=COLUMNS, rows=-(-len(panels) // COLUMNS)),
            )
            for heading, panels in sections(qualities).items()
        ],
        settings=ws.WorkspaceSettings(max_runs=100),
        runset_settings=ws.RunsetSettings(
            groupby=[Config(key) for key in GROUPING],
            group_colors=dict(COLOURS),
        ),
    )
    made._internal_runset_id = identity()
    return made


def report(entity: str, project: str, qualities: Sequence[str], *, online: bool) -> Any:
    """A page of text and panels. A run set with a project sends a request to the server, if ``online``."""
    import wandb_workspaces.reports.v2 as wr

    identity = _identities("report")
    blocks: list[Any] = [
        wr.P(
            "Every line and mark is the mean over the seeds of one method and setting; bands are their range."
        )
    ]
    for heading, panels in sections(qualities).items():
        place = {"entity": entity, "project": project} if online else {}
        runs = wr.Runset(name="All runs", groupby=[f"config.{key}" for key in GROUPING], **place)
        runs._id = identity()
        drawn = [_panel(panel, identity) for panel in panels]
        for index, panel in enumerate(drawn):
            panel.layout = wr.Layout(x=8 * (index % COLUMNS), y=6 * (index // COLUMNS), w=8, h=6)
        blocks += [wr.H2(heading), wr.PanelGrid(runsets=[runs], panels=drawn)]
    return wr.Report(
        entity=entity,
        project=project,
        title=NAME,
        description="Quality, bytes and total error of gradient sparsification",
        blocks=blocks,
        width="fluid",
    )


def _panel(panel: Chart, identity: Callable[[], str]) -> Any:
    import wandb_workspaces.reports.v2 as wr

    if isinstance(panel, Scatter):
        made = wr.ScatterPlot(
            title=panel.title,
            x=wr.SummaryMetric(panel.x),
            y=wr.SummaryMetric(panel.y),
            log_x=True,
            log_y=panel.log_y,
        )
    else:
        made = wr.LinePlot(
            title=panel.title,
            x=panel.x,
            y=[panel.y],
            title_x=panel.x_title,
            title_y=panel.y_title,
            log_y=panel.log_y,
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
            smoothing_type="none",
            max_runs_to_show=100,
        )
    made._id = identity()  # random by default
    return made


def _identities(prefix: str) -> Callable[[], str]:
    """Identifiers that are unique within a specification and equal in every specification."""
    numbers = count(1)
    return lambda: f"{prefix}{next(numbers)}"
