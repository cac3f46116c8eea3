"""The small presets' table from run folders made here."""

import json
import statistics
from pathlib import Path

import pytest
from configs import resolved
from hydra.core.global_hydra import GlobalHydra

import run
from results.small import main

METHODS = ("none", "top_k")
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    common = ["experiment=quick", f"output={folder}", "tracker=none", "trainer.steps=5"]
    for method in METHODS:
        for seed in SEEDS:
            config = resolved(*common, f"compressor={method}", f"seed={seed}")
            config["name"] = f"mlp-digits-{method}"
            run.run(config)
    GlobalHydra.instance().clear()
    return folder


def test_table_says_what_the_summaries_say(output: Path, tmp_path: Path) -> None:
    table = tmp_path / "small.md"
    assert main([str(output), "--table", str(table)]) == 0
    text = table.read_text()
    assert "## mlp-digits\n" in text and "4 workers, 50,826 parameters, 5 steps" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| `top_k, density 0.01`")]
    summaries = [json.loads(p.read_text()) for p in sorted(output.glob("mlp-digits-top_k/*/summary.json"))]
    assert len(summaries) == 3
    accuracies = [100 * summary["test/accuracy"] for summary in summaries]
    megabytes = statistics.mean(summary["comm/bytes_sent_total"] for summary in summaries) / 1e6
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "0, 1, 2"
    assert cells[2] == f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f}"
    assert cells[3] == "0.996"
    assert cells[5] == f"{megabytes:.4f}"


def test_table_is_rebuilt_byte_for_byte(output: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        main([str(output), "--table", str(tmp_path / name)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_empty_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: no finished run in {tmp_path}\n"
