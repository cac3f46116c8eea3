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


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no").touch()
    assert main([*ARGUMENTS, "--to", str(tmp_path / "no" / "file.json")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    with pytest.raises(SystemExit):
        main([*ARGUMENTS[:-1], "--to", "file.json"])
    assert "--to has no effect without --dry-run" in capsys.readouterr().err
