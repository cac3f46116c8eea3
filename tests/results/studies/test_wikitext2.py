"""The WikiText-2 study's page from few runs; that of all runs is compared with its archive."""

from pathlib import Path

import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.compare.measures import LINK_BYTES

main = command_of_results("study", "wikitext2")

MATCHED = {"match": "one_percent", "matched": {"one_percent": 0.02, "tenth_percent": 0.1}}


def write(folder: Path, compressor: str, **settings: float) -> None:
    told = {"test/perplexity": 100.0, "validation/perplexity": 101.0, LINK_BYTES: 2e7}
    name = f"wikitext2_lstm-{compressor}"
    write_run(folder, name=name, compressor=compressor, settings=settings, summary=told, budget=MATCHED)


def test_runs_of_one_method_make_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "top_k", density=0.01)
    assert main([str(tmp_path)]) == 0
    assert "| none | - | no finished run |" in capsys.readouterr().out


def test_a_threshold_of_no_sweep_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "hard_threshold", threshold=0.02)
    write(tmp_path, "hard_threshold", threshold=0.5)
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("bytes of Top-k 0.1 %, got hard_threshold, threshold 0.5")
