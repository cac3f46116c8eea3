"""The WikiText-2 study's page and figure, from small run folders."""

from pathlib import Path

import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.compare.measures import LINK_BYTES
from results.compare.statistics import mean_and_interval
from results.header import parse

main = command_of_results("study", "wikitext2")

MATCHED = {"match": "one_percent", "matched": {"one_percent": 0.02, "tenth_percent": 0.1}}
PERPLEXITIES = {
    "none": (100.0, 101.0, 102.0),
    "top_k": (110.0, 113.0, 111.0),
    "hard_threshold": (104.0, 105.0, 103.0),
}
BYTES = {"none": 1e9, "top_k": 2e7, "hard_threshold": 2.1e7}


def write(folder: Path, compressor: str, seed: int, threshold: float = 0.02) -> None:
    settings = {"hard_threshold": {"threshold": threshold}, "top_k": {"density": 0.01}}.get(compressor)
    perplexity = PERPLEXITIES[compressor][seed]
    told = {
        "test/perplexity": perplexity,
        "validation/perplexity": perplexity + 1,
        LINK_BYTES: BYTES[compressor],
    }
    name = f"wikitext2_lstm-{compressor}"
    write_run(
        folder, name=name, compressor=compressor, seed=seed, settings=settings, summary=told, budget=MATCHED
    )


@pytest.fixture
def output(tmp_path: Path) -> Path:
    for compressor in PERPLEXITIES:
        for seed in range(3):
            write(tmp_path / "runs", compressor, seed)
    return tmp_path / "runs"


def rows_of(text: str) -> dict[str, list[str]]:
    rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    )
    return {row[0]: row[1:] for row in rows}


def test_a_threshold_is_compared_with_the_top_k_of_its_bytes(output: Path, tmp_path: Path) -> None:
    table, figures = tmp_path / "page.md", tmp_path / "figures"
    assert main([str(output), "--table", str(table), "--figures", str(figures)]) == 0
    text = table.read_text()
    assert (parse(text).command, parse(text).seeds) == ("make wikitext2", (0, 1, 2))
    rows = rows_of(text)
    threshold = rows["threshold, bytes of Top-k 1 %"]
    assert threshold[:3] == ["0.02", "0, 1, 2", "104.00 ± 1.00"]
    pairs = zip(PERPLEXITIES["hard_threshold"], PERPLEXITIES["top_k"], strict=True)
    mean, half = mean_and_interval([ours - theirs for ours, theirs in pairs])
    assert half is not None
    assert threshold[5:7] == [f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]", "1.050"]
    assert rows["Top-k 1 %"][5:7] == ["-", "-"]
    assert rows["Top-k 0.1 %"][1] == rows["threshold, bytes of Top-k 0.1 %"][1] == "no finished run"
    assert {path.name for path in figures.iterdir()} == {"wikitext2.png"}


def test_words_follow_the_joint_intervals(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Joint intervals for three comparisons of three seeds are wide enough to include 0."""
    assert main([str(output)]) == 0
    flat = " ".join(capsys.readouterr().out.split())
    assert "for the 3 comparisons of this page" in flat
    assert "No difference shown: threshold, bytes of Top-k 1 % beside none" in flat
    assert "threshold, bytes of Top-k 1 % beside Top-k" in flat


def test_runs_of_one_method_make_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "top_k", 0)
    assert main([str(tmp_path)]) == 0
    assert "| none | - | no finished run |" in capsys.readouterr().out


def test_a_threshold_of_no_sweep_is_refused(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(output, "hard_threshold", 0, threshold=0.5)
    assert main([str(output)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("bytes of Top-k 0.1 %, got hard_threshold, threshold 0.5")
