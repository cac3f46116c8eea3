"""A Weights & Biases workspace and report with the figures that this package draws from run folders.

Runs of one method and setting are one group, shown as the mean over their seeds: grouped by the run's
``compressor_name``, ``method``, ``subject`` and ``group``, which the tracker logs beside the nested config.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from results.figures.style import COLOURS
from results.report.charts import QUALITIES as QUALITIES  # choices of the command
from results.report.charts import sections
from trainers.files.goals import higher_is_better

# Flat config keys that distinguish methods and settings; runs of one group differ only in their seeds. The
# nested ``compressor`` is not used: an agent of a W&B sweep over compressors fixes that key to a string. The
# compressor comes first because W&B gives colours to the outermost groups.
GROUPING = ("compressor_name", "method", "subject", "group")
NAME = "Total error"
COLUMNS = 3  # panels per row; a report is 24 units wide


def specification_text(entity: str, project: str, qualities: Sequence[str]) -> str:
    """The specification as JSON."""
    return json.dumps(specification(entity, project, qualities), indent=2) + "\n"


def save(entity: str, project: str, qualities: Sequence[str]) -> Iterator[str]:
    """Create the workspace, then the report, on the server; yield the address of each once it is saved."""
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
            group_colors=dict(COLOURS.items()),
        ),
    )
    made._internal_runset_id = identity()
    return made


def report(entity: str, project: str, qualities: Sequence[str], *, online: bool) -> Any:
    """A page of text and panels. If ``online``, its run sets name their project, which sends a request."""
    import wandb_workspaces.reports.v2 as wr

    identity = _identities("report")
    blocks: list[Any] = [
        wr.P(
            "Every line and mark is the mean over the seeds of one method and setting; bands are their range."
        )
    ]
    for heading, panels in sections(qualities).items():
        runs = wr.Runset(name="All runs", groupby=[f"config.{key}" for key in GROUPING])
        if online:
            runs.entity, runs.project = entity, project
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


def _panel(chart: dict[str, Any], identity: Callable[[], str]) -> Any:
    made = _of(**chart)
    made._id = identity()  # random by default
    return made


def _of(kind: str, **chart: Any) -> Any:
    """A panel of a kind in templates/charts.yaml.j2, with the chart's fields."""
    import wandb_workspaces.reports.v2 as wr

    over_seeds: dict[str, Any] = {
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "minmax",
        "max_runs_to_show": 100,
    }
    match kind:
        case "scatter":
            x, y = _last(chart["x"]), _last(chart["y"])
            return wr.ScatterPlot(title=chart["title"], x=x, y=y, log_x=True, log_y=chart["log_y"])
        case "lines":
            names = [chart["y"]] if isinstance(chart["y"], str) else chart["y"]
            return wr.LinePlot(
                title=chart["title"],
                x=chart.get("x", "Step"),
                y=names,
                title_x=chart.get("x_title", "step"),
                title_y=chart["y_title"],
                log_y=chart.get("log_y", False),
                smoothing_type="none",
                metric_regex=chart.get("pattern"),
                custom_expressions=_with_levels(names, chart.get("references", ())),
                **over_seeds,
            )
        case "bars":
            return wr.BarPlot(orientation="h", title_x=chart.pop("x_title"), **chart, **over_seeds)
        case "layers":
            return wr.CustomChart(
                query={"summaryTable": {"tableKey": "layers"}},
                chart_name="wandb/bar/v0",
                chart_fields={"label": "layer", "value": chart["column"]},
                chart_strings={"title": chart["title"]},
            )
        case "parallel":
            columns = [wr.ParallelCoordinatesPlotColumn(metric=_last(one)) for one in chart["columns"]]
            return wr.ParallelCoordinatesPlot(title=chart["title"], columns=columns)
        case "importance":
            return wr.ParameterImportancePlot(with_respect_to=_summary_key(chart["metric"]))
    return wr.MarkdownPanel(**chart)


def _with_levels(metrics: list[str], references: Sequence[float]) -> list[str] | None:
    """The metrics and a level line at each reference, as W&B expressions, whose numbers have no exponents."""
    if not references:
        return None
    zero = f"0 * ${{{metrics[0]}}}"
    levels = [f"{value:.20f}".rstrip("0").rstrip(".") for value in references]
    return [*(f"${{{name}}}" for name in metrics), *(f"{level} + {zero}" for level in levels)]


def _last(quantity: str) -> Any:
    """The last value of a metric in the run's summary, or a setting in its config."""
    import wandb_workspaces.reports.v2 as wr

    key = quantity.removeprefix("config.")
    return wr.SummaryMetric(_summary_key(quantity)) if key == quantity else wr.Config(key)


def _summary_key(metric: str) -> str:
    """The key of a metric's last value; W&B's summary has last and best value of a metric with a goal."""
    return metric if higher_is_better(metric) is None else f"{metric}.last"


def _identities(prefix: str) -> Callable[[], str]:
    """A function that returns ``prefix`` and its call's number: unique, and equal in all specifications."""
    numbers = count(1)
    return lambda: f"{prefix}{next(numbers)}"
