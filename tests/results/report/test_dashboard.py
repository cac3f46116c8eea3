"""The specification of a W&B workspace and report: panels, metrics that exist, grouping, no network."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from configs import resolved
from results_commands import command_of_results

from results.figures.style import COLOURS
from results.report.dashboard import GROUPING, QUALITIES, specification
from trainers.records.identity import compressor_name
from trainers.run.folder import RunFolder

main = command_of_results("report")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # wandb-workspaces' own
ROOT = Path(__file__).parents[3]
ARGUMENTS = ["--entity", "someone", "--project", "total-error", "--dry-run"]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return specification("someone", "total-error", list(QUALITIES))


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects inside, at any depth."""
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
    return {metric.removeprefix("summary:") for metric in found - {None, "_step"}}


def documented() -> set[str]:
    """Metric names in the table of docs/reference.md; ... stands for a name after the slash."""
    text = (ROOT / "docs" / "reference.md").read_text()
    table = text[text.index("## Metrics") :]
    return {
        name for line in table.splitlines() if line[:1] == "|" for name in re.findall(r"`(\w+/[\w.]+)`", line)
    }


@pytest.mark.parametrize("part", ["workspace", "report"])
def test_panels_show_what_the_figures_show(made: dict[str, Any], part: str) -> None:
    scatter = {
        (panel["config"]["xAxis"].split(":")[1], panel["config"]["yAxis"].split(":")[1])
        for panel in panels(made[part])
        if panel["viewType"] == "Scatter Plot"
    }
    assert ("comm/link_bytes_sent_total", "compression/total_error") in scatter
    for quality in QUALITIES:
        assert {("comm/link_bytes_sent_total", quality), ("compression/density_mean", quality)} <= scatter
    lines = {
        metric: panel["config"]
        for panel in panels(made[part])
        if panel["viewType"] == "Run History Line Plot" and panel["config"]["xAxis"] == "_step"
        for metric in panel["config"]["metrics"]
    }
    assert {"train/loss", "compression/density", "compression/total_error"} <= lines.keys()
    assert all((line["groupAgg"], line["groupArea"]) == ("mean", "minmax") for line in lines.values())


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


def test_groups_are_the_facts_that_seeds_share(tmp_path: Path) -> None:
    facts = []
    for words in (["seed=0"], ["seed=1"], ["seed=0", "budget.density=0.02"], ["seed=0", "workers=4"]):
        folder = RunFolder(resolved("compressor=top_k", *words) | {"output": str(tmp_path)})
        folder.open()
        facts.append([folder.facts()[key] for key in GROUPING])
        folder.lock.release()
    assert facts[0] == facts[1]
    assert facts[0][:3] == ["top_k", "top_k, density 0.001", "resnet18-digits"]
    assert len({tuple(each) for each in facts}) == 3


def test_methods_have_their_colours(made: dict[str, Any]) -> None:
    colours = made["workspace"]["spec"]["section"]["customRunColors"]
    for method, colour in COLOURS.items():
        if (ROOT / f"conf/compressor/{method}.yaml").exists():
            assert compressor_name(resolved(f"compressor={method}")) == method
        assert [value for key, value in colours.items() if f"%22{method}%22" in key] == [colour]


def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    files = [tmp_path / "here.json", tmp_path / "there.json"]
    assert main([*ARGUMENTS, "--to", str(files[0])]) == 0
    command = [sys.executable, "-m", "results", "report", *ARGUMENTS, "--to", str(files[1])]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert json.loads(files[0].read_text())["workspace"]["entity"] == "someone"


def test_no_panel_has_the_name_of_another(made: dict[str, Any]) -> None:
    for part in made.values():
        names = [panel["__id__"] for panel in panels(part)]
        assert len(set(names)) == len(names) > 0


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--to", str(tmp_path / "no" / "file.json")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    with pytest.raises(SystemExit):
        main([*ARGUMENTS[:-1], "--to", "file.json"])
    assert "--to has no effect without --dry-run" in capsys.readouterr().err


def test_no_server_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionError("nobody\nanswers")

    monkeypatch.setattr("results.report.dashboard.workspace", refuse)
    assert main(ARGUMENTS[:-1]) == 1
    assert capsys.readouterr().err == "error: Weights & Biases: nobody answers\n"
