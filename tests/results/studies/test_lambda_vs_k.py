"""Hard threshold compared with Top-k, from small run folders."""

import math
from pathlib import Path

import pytest
from page_headers import parse
from results_commands import command_of_results
from run_folders import write_run

from results.read.folders import read_runs
from results.studies.lambda_vs_k import interpolated, pairs_of, problems_of, within

main = command_of_results("study", "lambda_vs_k")

NOISE = (0.0, 0.4, -0.4, 0.2, -0.2)  # of the accuracy in points, by seed


def network(
    folder: Path, compressor: str, sent: float, accuracy: float, error: float, seeds: int = 5, **keys
) -> None:
    for seed in range(seeds):
        noise = NOISE[seed] * (1 if compressor == "hard_threshold" else -1)
        record = {
            "compression/density": 0.01,
            "compression/density_mean": 0.01,
            "test/accuracy": (accuracy + noise) / 100,
        }
        record |= {"comm/link_bytes_sent_total": sent, "compression/total_error": error}
        records = [{"step": step, **record} for step in (1, 2)]
        write_run(
            folder, name=f"net-digits-{compressor}", compressor=compressor, seed=seed, records=records, **keys
        )


def convex(folder: Path, compressor: str, sent: float, error: float, noise: float, **settings: float) -> None:
    for seed in range(3):
        suboptimality = 0.01 * math.exp(noise * (seed - 1))
        record = {"step": 10, "comm/link_bytes_sent_total": sent, "convex/suboptimality": suboptimality}
        record |= {"compression/total_error": error * (1 + 0.01 * seed * (compressor == "top_k"))}
        name = f"rows-{compressor}"
        model = {"_target_": "models.convex.logistic_l2.LogisticL2"}
        write_run(
            folder,
            name=name,
            compressor=compressor,
            seed=seed,
            records=[record],
            model=model,
            settings=settings,
        )


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    network(folder, "none", 100e6, 99.0, 0.0)
    network(folder, "top_k", 1e6, 96.0, 900.0, settings={"density": 0.01})
    network(folder, "top_k", 3e6, 98.0, 300.0, settings={"density": 0.03})
    network(folder, "top_k", 9e6, 99.0, 100.0, settings={"density": 0.09})
    network(folder, "hard_threshold", 1.05e6, 98.0, 300.0, settings={"threshold": 0.3})
    network(folder, "hard_threshold", 2.9e6, 98.1, 100.0, settings={"threshold": None, "density": 0.001})
    network(folder, "hard_threshold", 7e6, 99.5, 30.0, settings={"threshold": 0.1})
    for density, sent, error in ((0.1, 1e5, 1.0), (0.2, 4e5, 0.25)):
        convex(folder, "top_k", sent, error, 1.0, density=density)
    convex(folder, "hard_threshold", 2e5, 0.25, -1.0, threshold=0.5)
    convex(folder, "hard_threshold", 8e5, 0.1, 0.0, threshold=0.05)  # more bytes than any Top-k
    return folder


def test_pairs_are_chosen_by_bytes_alone(output: Path) -> None:
    """A threshold with 22 % fewer bytes than Top-9 % has no partner, whatever its accuracy."""
    network_study, convex_study = problems_of(read_runs([output]))
    pairs = dict(pairs_of(network_study))
    assert pairs == {
        "top_k, density 0.01": "hard_threshold, threshold 0.3",
        "top_k, density 0.03": "hard_threshold, density 0.001",
    }
    assert within(convex_study) == ["hard_threshold, threshold 0.5"]


def test_words_go_no_further_than_all_comparisons_together(output: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert main([str(output), "--table", str(page)]) == 0
    text = page.read_text()
    made = parse(text)
    assert made.command == f"python -m results study lambda_vs_k {output}"
    assert made.seeds == (0, 1, 2, 3, 4)
    rows = {
        cells[1]: cells[2:-1]
        for cells in ([c.strip() for c in line.split("|")] for line in text.splitlines())
        if len(cells) > 8
    }
    threshold, sent, _, _, kind, difference, word, _, _, error = rows["1 %"]
    assert (threshold, sent, word) == ("0.3", "1.05 (1.05 to 1.05)", "higher")
    # differences 2 + 2 noise, standard deviation 0.632, t of 4 degrees of freedom is 2.776
    assert (kind, difference) == ("exploratory", "+2.00 [+1.21, +2.79]")
    assert error == "3.00 (3.00 to 3.00)"
    assert rows["3 %"][0] == "0.5 (the rule for 0.1 %)" and rows["3 %"][6] == "not resolved"
    assert "9 %" not in rows
    words = " ".join(text.split())
    assert "p is adjusted among 4 exploratory comparisons (Holm)" in words
    assert "threshold minus Top-k. Test accuracy: higher beside Top-k 1 % (+2.00 [+1.21, +2.79])" in words
    assert "total error: smaller with the threshold at 1 of 1. f(x) - f*: not resolved at 1 of 1" in words


def test_top_k_between_its_densities(output: Path) -> None:
    """Bytes and errors are interpolated in logarithms: halfway between the errors 1 and 0.25 is 0.5."""
    problem = problems_of(read_runs([output]))[1]
    run = problem.thresholds["hard_threshold, threshold 0.5"][0]
    assert interpolated(problem, run, "compression/total_error") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("compressor", "said"),
    [
        ("random_k", "runs must be of none, top_k, hard_threshold, got random_k"),
        (None, "must include hard_threshold"),
    ],
)
def test_runs_that_cannot_be_compared_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compressor: str | None, said: str
) -> None:
    write_run(tmp_path, compressor="top_k")
    if compressor:
        write_run(tmp_path, compressor=compressor)
    assert main([str(tmp_path)]) == 1
    assert said in capsys.readouterr().err.splitlines()[-1]
