"""The regret study's page, from small run folders."""

import statistics
from pathlib import Path

import pytest
from page_headers import parse
from results_commands import command_of_results
from run_folders import write_run

from results.compare.measures import LINK_BYTES
from results.compare.statistics import mean_and_interval

main = command_of_results("study", "regret")

ACCURACY = {"hard_threshold": (0.90, 0.92, 0.91), "top_k": (0.80, 0.83, 0.81), "random_k": (0.7, 0.9, 0.8)}
REGRETS = {"hard_threshold": (1e-5, 2e-5, 0.0), "top_k": (0.3, 0.4, 0.5), "random_k": (2.0, 2.2, 2.1)}
BYTES = {"hard_threshold": 1e6, "top_k": 1.04e6, "random_k": 1e6}


def runs_in(folder: Path, seeds: int = 3, workers: int = 4, **bytes_sent: float) -> Path:
    for method, accuracies in ACCURACY.items():
        for seed in range(seeds):
            told = {
                "test/accuracy": accuracies[seed],
                LINK_BYTES: (BYTES | bytes_sent)[method],
                "compression/hindsight_error": 40.0,
                "compression/regret": REGRETS[method][seed],
                "compression/regret_bound": 1e-4,
            }
            write_run(folder, compressor=method, seed=seed, workers=workers, summary=told)
    return folder


def cells(text: str, method: str) -> list[str]:
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{method}")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_page_says_what_the_summaries_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "regret.md"
    runs = runs_in(tmp_path / "runs")
    assert main([str(runs), "--table", str(table)]) == 0
    text = table.read_text()
    assert (parse(text).command, parse(text).seeds) == (f"python -m results study regret {runs}", (0, 1, 2))
    top_k = cells(text, "top_k")
    assert top_k[1:3] == ["0, 1, 2", "1.04"]
    assert top_k[6:9] == ["40.0 ± 10.0", "0.01", "81.33 ± 1.53"]
    differences = [100 * (a - b) for a, b in zip(ACCURACY["top_k"], ACCURACY["hard_threshold"], strict=True)]
    mean, half = mean_and_interval(differences)
    assert statistics.mean(differences) == mean
    assert top_k[9] == f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"
    assert cells(text, "hard_threshold")[9] == "-"
    flat = " ".join(text.split())
    order = [flat.index(f"`{method}, ", flat.index("In the order of regret")) for method in REGRETS]
    assert order == sorted(order)
    assert "`hard_threshold, lambda 0.01` (0 within the uncertainty), `top_k, density 1 %` (40 %)" in flat
    rows = [
        line for line in text.splitlines() if " minus hard_threshold, lambda 0.01 | exploratory | " in line
    ]
    assert [row.split(" | ")[3] for row in rows] == ["not resolved", "lower"]
    assert "p is adjusted among 2 exploratory comparisons (Holm)" in flat


def test_other_bytes_are_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(runs_in(tmp_path, top_k=1.3e6, random_k=2e6))]) == 0
    text = capsys.readouterr().out
    assert cells(text, "top_k")[9] == "1.30 times the bytes"
    assert "no other method has equal bytes" in " ".join(text.split())


def test_two_seeds_have_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(runs_in(tmp_path, seeds=2))]) == 0
    text = capsys.readouterr().out
    assert cells(text, "top_k")[6] == "35.0 (2 seeds)"
    assert "lower" not in text and "not resolved" not in text


def test_runs_without_regret_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path)
    assert main([str(tmp_path)]) == 1
    assert "its summary has no compression/regret" in capsys.readouterr().err
