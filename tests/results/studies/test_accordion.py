"""The ACCORDION study's table and figure, from small run folders."""

from pathlib import Path

import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.read.folders import read_runs
from results.studies.accordion import share_at_high

main = command_of_results("study", "accordion")

ACCORDION = {"k_low": 0.01, "k_high": 0.1, "detection_threshold": 0.5, "period": 2}


def write(folder: Path, compressor: str, seed: int, sent: float, accuracy: float, **settings: object) -> None:
    records = [
        {"step": step, "epoch": step / 10, "compression/density": sent, "test/accuracy": accuracy}
        for step in (1, 10, 20)
    ]
    layers = {
        "big": {"elements": 1000, "total_error": 1.0, "density_mean": sent},
        "one": {"elements": 1, "total_error": 0.0, "density_mean": 1.0},
    }
    summary = {"layers": layers, "compression/density_mean": sent, "comm/link_bytes_sent_total": 8e6 * sent}
    write_run(
        folder,
        name=f"accordion_net-{compressor}",
        compressor=compressor,
        seed=seed,
        records=records,
        summary={
            **summary,
            "comm/values_bytes_total": 4e6 * sent,
            "comm/paper_bits_total": 32e6 * sent,
        },
        settings=settings,
    )


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for seed in (0, 1, 2):
        write(folder, "none", seed, 1.0, 0.95 + seed / 100)
        write(folder, "top_k", seed, 0.01, 0.90 + seed / 100, density=0.01)
        write(folder, "top_k", seed, 0.1, 0.93, density=0.1)
        write(folder, "hard_threshold", seed, 0.02, 0.92 + seed / 50, threshold=None, density=0.01)
        write(folder, "accordion", seed, 0.055, 0.91 + seed / 50, **ACCORDION)
    return folder


def test_the_table_says_what_the_runs_say(output: Path, tmp_path: Path) -> None:
    table, figures = tmp_path / "t.md", tmp_path / "figures"
    assert main([str(output), "--table", str(table), "--figures", str(figures)]) == 0
    lines = [line for line in table.read_text().splitlines() if line.startswith("| ")]
    rows = {
        cells[0]: cells[1:] for line in lines if (cells := [c.strip() for c in line.strip("|").split("|")])
    }
    assert list(rows) == [
        "method",
        "dense SGD",
        "Top-k, 1 %",
        "Top-k, 10 %",
        "hard threshold, lambda 0.1581",
        "ACCORDION, 1 % or 10 %",
    ]
    ours, threshold = rows["ACCORDION, 1 % or 10 %"], rows["hard threshold, lambda 0.1581"]
    assert ours[:4] == ["-", "0, 1, 2", "93.00 ± 2.00", "5.50"]
    assert threshold[0] == "density 1 %"
    assert ours[rows["method"].index("at k_high, %")] == "50.0"
    assert threshold[rows["method"].index("at k_high, %")] == "-"
    assert threshold[-2:] == ["-1.00", "+3.50"]  # the difference is the same in every seed
    assert ours[-2:] == ["-", "-"]
    assert {path.name for path in figures.iterdir()} == {"accordion_net.png"}


def test_share_at_high(output: Path) -> None:
    """The mean of the elements sent is halfway from k_low to k_high; a layer of one element is ignored."""
    shares = {run.compressor: share_at_high(run) for run in read_runs([output])}
    assert shares["accordion"] == pytest.approx(0.5) and shares["top_k"] is None


def test_without_accordion_there_is_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "top_k", 0, 0.01, 0.9, density=0.01)
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "error: runs of accordion_net must include compressor=accordion in one setting, got 0"
