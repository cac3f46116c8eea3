"""Tables, figures and reports of valid and hostile run folders: they show the valid runs."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from hostile_runs import write_hostile
from markdown_it import MarkdownIt
from run_folders import write_run

from results.figures import command as figures
from results.read.folders import read_runs
from results.read.matching import latest
from results.report import command as report
from results.tables import command as tables

QUICK, MANY, TOGETHER = 8, 520, 26
MARKDOWN = {"h1", "h2", "p", "ul", "li", "code", "table", "thead", "tbody", "tr", "th", "td"}  # tags


def write_good(folder: Path) -> None:
    for compressor in ("none", "top_k"):
        for seed in range(3):
            write_run(folder / "good", compressor=compressor, seed=seed)


def show_all(
    folder: Path, capsys: pytest.CaptureFixture[str], seeds: range, settings: int, only: str
) -> None:
    """Make and check all tables, figures and reports of valid and hostile run folders."""
    write_good(folder)
    done = [write_hostile(folder / f"hostile-{seed}", seed, 10 + seed % settings) for seed in seeds]
    runs = read_runs([folder])
    shown = [run.path.relative_to(folder).parts[0] for run in runs]
    said = capsys.readouterr().err
    named = [f"hostile-{seed}" for seed in seeds if f"left out {folder / f'hostile-{seed}'}/" in said]
    assert shown.count("good") == 6, done
    assert {*shown, *named} >= {f"hostile-{seed}" for seed in seeds}, done
    assert all(line.startswith("left out ") and line.isprintable() for line in said.splitlines()), done

    made = folder / "made"
    commands = (
        (tables, ["--format", "all", "--to", str(made / "tables")]),
        (tables, ["--wide", str(made / "wide.csv"), "--long", str(made / "long.csv")]),
        (figures, ["--to", str(made), "--only", only]),
        (report, ["--to", str(made / "report.html")]),
    )
    made.mkdir()
    for module, arguments in commands:
        assert module.main([str(folder), *arguments]) == 0, (module.__name__, done)
    capsys.readouterr()

    text = (made / "tables.md").read_text()
    assert "## mlp-digits\n" in text and set(re.findall(r"<(\w+)", render(text))) <= MARKDOWN, done
    for path in made.glob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if re.match(r"[=@+\t\r]|-(?![\d.]|inf)", cell)], done
    page = (made / "report.html").read_text()
    body = page[: page.index('<script type="application/json"')]
    assert "<img" not in body and "<script" not in body and body.count('class="run"') == len(latest(runs)), (
        done
    )
    assert not list(folder.parent.glob("outside*")) and {path.parent for path in made.rglob("*")} == {made}


def render(text: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(text)


def test_hostile_folders_stop_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_all(tmp_path / "runs", capsys, range(QUICK), 3, "quality_bytes")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"settings": {"threshold": None, "density": -0.5}}, "compressor.density must be > 0, got -0.5"),
        ({"settings": {"threshold": "abc"}}, "compressor.threshold must be a number, got 'abc'"),
        ({"settings": {"threshold": None, "density": "x"}}, "compressor.density must be a number, got 'x'"),
        ({"summary": {"layers": {}}}, "layers has no elements"),
    ],
)
def test_a_run_that_cannot_be_shown_is_left_out(
    changes: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_good(tmp_path)
    bad = write_run(tmp_path / "bad", compressor="hard_threshold", **changes)
    assert len(read_runs([tmp_path])) == 6
    said = capsys.readouterr().err
    assert said.startswith(f"left out {bad}: ") and said.endswith(f"{reason}\n")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(QUICK, QUICK + MANY, TOGETHER))
def test_many_hostile_folders_stop_nothing(
    start: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_all(tmp_path / "runs", capsys, range(start, start + TOGETHER), 3, ",".join(figures.FIGURES))


def test_none_but_hostile_folders_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path)
    for path in tmp_path.rglob("summary.json"):
        path.write_text("[]")
    for module in (tables, figures, report):
        assert module.main([str(tmp_path)]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2 and f"error: no finished run in {tmp_path}" in lines
