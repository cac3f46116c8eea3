"""The specification of a W&B workspace and report: panels, metrics that exist, grouping, no network."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from results_commands import command_of_results

from results.report.dashboard import GROUPING, QUALITIES, specification

main = command_of_results("report")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by wandb-workspaces
ROOT = Path(__file__).parents[3]
ARGUMENTS = ["--entity", "someone", "--project", "total-error", "--dry-run"]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return specification("someone", "total-error", list(QUALITIES))


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """All dicts in ``value``, at any depth."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)


def panels(part: Any) -> list[dict[str, Any]]:
    return [one for one in objects(part) if "viewType" in one]


def metrics(part: Any) -> set[str]:
    found = set()
    for panel in panels(part):
        config = panel["config"]
        found |= {config.get("xAxis"), config.get("yAxis"), *config.get("metrics", ())}
        found |= {column["accessor"] for column in config.get("columns", ())} | {config.get("targetKey")}
    shown = {metric for metric in found - {None, "_step", "epoch"} if not metric.startswith("config:")}
    return {metric.removeprefix("summary:").removesuffix(".last") for metric in shown}


def documented() -> set[str]:
    """Metric names in the table of docs/reference.md, where ``...`` stands for any name after the slash."""
    text = (ROOT / "docs" / "reference.md").read_text()
    table = text[text.index("## Metrics") :]
    return {
        name for line in table.splitlines() if line[:1] == "|" for name in re.findall(r"`(\w+/[\w.]+)`", line)
    }


@pytest.mark.parametrize("part", ["workspace", "report"])
def test_metrics_are_in_the_reference(made: dict[str, Any], part: str) -> None:
    known = documented()
    assert "validation/..." in known and "comm/link_bytes_sent_total" in known
    unknown = {m for m in metrics(made[part]) if m not in known and f"{m.split('/')[0]}/..." not in known}
    assert len(metrics(made[part])) > 8 and unknown == set()


@pytest.mark.parametrize("part", ["workspace", "report"])
def test_runs_are_grouped_by_method_so_that_seeds_are_left(made: dict[str, Any], part: str) -> None:
    run_sets = [run_set for one in objects(made[part]) for run_set in one.get("runSets", ())]
    assert run_sets
    for run_set in run_sets:
        keys = [(key["section"], key["name"]) for key in run_set["grouping"]]
        assert keys == [("config", f"{name}.value") for name in GROUPING]


@pytest.mark.parametrize("part", ["workspace", "report"])
def test_every_field_is_one_of_the_schema(made: dict[str, Any], part: str) -> None:
    """W&B's panel classes accept every panel, keep all its fields and know every field of its config."""
    from wandb_workspaces.reports.v2 import internal

    kinds = {
        "Scatter Plot": internal.ScatterPlot,
        "Run History Line Plot": internal.LinePlot,
        "Bar Chart": internal.BarPlot,
        "Vega2": internal.Vega2,
        "Parallel Coordinates Plot": internal.ParallelCoordinatesPlot,
        "Parameter Importance": internal.ParameterImportancePlot,
        "Markdown Panel": internal.MarkdownPanel,
    }
    found = panels(made[part])
    assert {panel["viewType"] for panel in found} == set(kinds)
    for panel in found:
        read = kinds[panel["viewType"]].model_validate(panel)
        assert read.model_dump(mode="json", by_alias=True, exclude_none=True) == panel
        known = {field.alias or name for name, field in type(read.config).model_fields.items()}
        assert panel["config"].keys() <= known


def scatter(x: str, y: str) -> tuple[str, dict[str, Any]]:
    return "Scatter Plot", {"xAxis": x, "yAxis": y}


def lines(*metrics: str, x: str = "_step") -> tuple[str, dict[str, Any]]:
    return "Run History Line Plot", {"xAxis": x, "metrics": list(metrics)}


BYTES, ERROR, ACCURACY = (
    f"summary:{name}"
    for name in ("comm/link_bytes_sent_total", "compression/total_error", "test/accuracy.last")
)
THRESHOLD, ALPHA = "config:threshold.value", "config:data.value.alpha"
FIGURES: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {  # section heading and panels, by figure
    "quality over link bytes": (
        "Quality against what was sent",
        [scatter(BYTES, ACCURACY), lines("test/accuracy", x="comm/link_bytes_sent_total")],
    ),
    "quality over density": (
        "Quality against what was sent",
        [scatter("summary:compression/density_mean", ACCURACY)],
    ),
    "density over epochs": ("Over the training", [lines("compression/density", x="epoch")]),
    "total error over steps": ("Total error and norm of the input", [lines("compression/total_error")]),
    "norm of p over steps": (
        "Total error and norm of the input",
        [lines("compression/input_norm_squared")],
    ),
    "error by layer": (
        "By layer",
        [("Vega2", {"fieldSettings": {"label": "layer", "value": "total_error"}})],
    ),
    "bytes by kind": (
        "Bytes by kind",
        [
            (
                "Bar Chart",
                {"metrics": [f"comm/{k}_bytes_total" for k in ("values", "indices", "padding", "metadata")]},
            )
        ],
    ),
    "lambda against k": (
        "Lambda against k",
        [scatter(THRESHOLD, "summary:compression/density_mean"), scatter(THRESHOLD, ERROR)],
    ),
    "xi": ("Diagnostics", [lines("diagnostics/xi")]),
    "staleness": ("Diagnostics", [lines("diagnostics/waited_mean"), lines("diagnostics/unsent_longest")]),
    "selection error": (
        "Diagnostics",
        [("Run History Line Plot", {"metricRegex": r"^diagnostics/selection_error_\d+$"})],
    ),
    "gap": ("Diagnostics", [lines("diagnostics/gap"), lines("diagnostics/gap_relative")]),
    "hindsight": (
        "Hindsight and regret",
        [lines("compression/total_error", "compression/hindsight_error")],
    ),
    "regret": ("Hindsight and regret", [lines("compression/regret")]),
    "heterogeneity": ("Heterogeneity", [scatter(ALPHA, ACCURACY), scatter(ALPHA, ERROR)]),
    "workers": (
        "Workers",
        [scatter("config:workers.value", ACCURACY), scatter("config:workers.value", BYTES)],
    ),
    "break-even": (
        "Break-even",
        [scatter("summary:compression/density_mean", "summary:comm/break_even_bits_per_second")],
    ),
    "parallel coordinates": (
        "Sweeps",
        [
            (
                "Parallel Coordinates Plot",
                {
                    "columns": [
                        {"accessor": name}
                        for name in (
                            "config:compressor_name.value",
                            THRESHOLD,
                            "config:density.value",
                            "config:optimizer.value.lr",
                            BYTES,
                            ERROR,
                            ACCURACY,
                        )
                    ]
                },
            )
        ],
    ),
    "importance": ("Sweeps", [("Parameter Importance", {"targetKey": "test/accuracy.last"})]),
    "values of the paper": (
        "Values of the paper",
        [lines("compression/error"), lines("convex/suboptimality"), lines("comm/paper_bits_total")],
    ),
}


def in_sections(made: dict[str, Any], part: str) -> dict[str, list[dict[str, Any]]]:
    """Panels by heading, in the workspace or in the report."""
    if part == "workspace":
        banks = made[part]["spec"]["section"]["panelBankConfig"]["sections"]
        return {bank["name"]: bank["panels"] for bank in banks}
    found: dict[str, list[dict[str, Any]]] = {}
    for block in made[part]["spec"]["blocks"]:
        if block["type"] == "heading":
            heading = block["children"][0]["text"]
        elif block["type"] == "panel-grid":
            found[heading] = panels(block)
    return found


@pytest.mark.parametrize("part", ["workspace", "report"])
@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_has_its_panels_in_its_section(made: dict[str, Any], part: str, figure: str) -> None:
    heading, expected = FIGURES[figure]
    there = in_sections(made, part)[heading]
    for kind, fields in expected:
        alike = [
            panel["config"]
            for panel in there
            if panel["viewType"] == kind and fields.items() <= panel["config"].items()
        ]
        assert alike, f"{figure}: no {kind} of {fields}"
        if kind in ("Run History Line Plot", "Bar Chart"):  # aggregated over the seeds of a setting
            assert all((one["groupAgg"], one["groupArea"]) == ("mean", "minmax") for one in alike)


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--to", str(tmp_path / "no" / "file.json")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    with pytest.raises(SystemExit):
        main([*ARGUMENTS[:-1], "--to", "file.json"])
    assert "--to has no effect without --dry-run" in capsys.readouterr().err
