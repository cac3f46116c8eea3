"""Figures and table of the study of Top-k's convergence, from small run folders."""

import statistics
from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.figures.groups import groups
from results.read.folders import read_runs
from results.studies import topk_convergence
from results.studies.topk_convergence import FIGURES, OF_BOUND, equal_bytes, with_ratio

main = command_of_results("study", "topk_convergence")

STEPS = (10, 20, 30, 40)


def record(step: int, seed: int, compressor: str) -> dict[str, float]:
    found = {
        "step": step,
        "epoch": step / 10,
        "train/loss": 2 / step + 0.01 * seed,
        "compression/error": 3.0,
        "comm/link_bytes_sent_total": 80.0 * step,
        "test/accuracy": 0.9 + 0.01 * seed,
        "diagnostics/selection_error_0.01": 0.8 + 0.01 * seed,
        "diagnostics/selection_error_0.1": 0.4,
    }
    if compressor == "none":
        return found
    shares = {1: 0.9, 30: 0.5} if compressor == "top_k" else {1: 0.8, 30: 0.25}
    for kind in ("waited", "unsent", "residual_unsent"):
        found |= {f"diagnostics/{kind}_{age}": share + 0.01 * seed for age, share in shares.items()}
    return found | {
        "diagnostics/xi": step / 10 + seed,
        "diagnostics/error_bound": 4.0,
        "diagnostics/unsent_longest": step,
        "diagnostics/waited_longest": step,
        "diagnostics/waited_mean": 2.0,
    }


@pytest.fixture
def output(tmp_path: Path) -> Path:
    for compressor in ("none", "top_k", "hard_threshold"):
        for seed in (0, 1, 2):
            records = [record(step, seed, compressor) for step in STEPS]
            write_run(tmp_path / "runs", compressor=compressor, seed=seed, records=records)
    return tmp_path / "runs"


def test_the_table_says_what_the_records_say(output: Path, tmp_path: Path) -> None:
    assert main([str(output), "--figures", str(tmp_path / "figures"), "--table", str(tmp_path / "t.md")]) == 0
    text = (tmp_path / "t.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| top_k")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    xi = [statistics.median([step / 10 + seed for step in STEPS]) for seed in (0, 1, 2)]
    assert cells[1] == "91.00 ± 1.00"
    assert cells[2] == "3,200"
    assert cells[3] == f"{statistics.mean(xi):.2f} ± {statistics.stdev(xi):.2f}"
    assert cells[4] == "5.00 ± 1.00"
    assert cells[5] == "0.750"
    assert cells[6] == "0.510 ± 0.010"
    assert cells[7] == "40"
    (dense,) = [line for line in text.splitlines() if line.startswith("| none")]
    assert [cell.strip() for cell in dense.strip("|").split("|")][3:] == ["-"] * 5
    drawn = sorted(path.stem for path in (tmp_path / "figures").glob("*.png"))
    assert drawn == sorted(f"mlp-digits-{name}" for name in FIGURES)


def lines(figure: matplotlib.figure.Figure, panel: int) -> dict[str, np.ndarray]:
    """The data of the lines of one panel, by method."""
    drawn = (line for line in figure.axes[panel].lines if not line.get_label().startswith("_"))
    return {line.get_label(): line.get_xydata() for line in drawn}


def test_figures_show_means_over_seeds(output: Path) -> None:
    (group,) = groups(map(with_ratio, read_runs([output])))
    top_k, threshold = "top_k, density 1 %", "hard_threshold, lambda 0.01"
    xi = topk_convergence.xi(group)
    assert lines(xi, 0)[top_k].tolist() == [[step, step / 10 + 1] for step in STEPS]
    assert lines(xi, 1)[top_k][:, 1].tolist() == [0.75] * 4 and "none" not in lines(xi, 0)
    selected = lines(topk_convergence.selection(group), 0)
    np.testing.assert_allclose(selected["none"], [[10, 0.81], [100, 0.4]])
    assert set(selected) == {"none", top_k}
    assert set(lines(topk_convergence.convergence(group), 0)) == {"none", top_k}
    waited, mass = (lines(topk_convergence.staleness(group), panel) for panel in (0, 1))
    np.testing.assert_allclose(mass[top_k], [[1, 0.91], [30, 0.51]])
    np.testing.assert_allclose(waited[threshold], [[1, 0.81], [30, 0.26]])
    assert OF_BOUND in group.methods[top_k][0].records


def test_runs_without_diagnostics_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_run(tmp_path / "runs")
    assert main([str(tmp_path / "runs")]) == 0
    said = capsys.readouterr()
    for name in ("xi", "selection", "staleness"):
        assert f"skipped mlp-digits-{name}: no run has diagnostics/" in said.err
    assert "## mlp-digits" in said.out
    assert main([str(tmp_path / "nothing")]) == 1


@pytest.mark.filterwarnings("error")
def test_nothing_stands_at_equal_bytes_where_none_travel(tmp_path: Path) -> None:
    for compressor in ("top_k", "hard_threshold"):
        write_run(tmp_path, compressor=compressor, workers=1, summary={"comm/link_bytes_sent_total": 0.0})
    (group,) = groups(read_runs([tmp_path]))
    assert equal_bytes(group) == []
