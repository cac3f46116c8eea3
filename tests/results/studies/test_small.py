"""The table of the small presets, from short runs and small run folders."""

import json
import statistics
from pathlib import Path

import pytest
from configs import resolved
from hydra.core.global_hydra import GlobalHydra
from results_commands import command_of_results
from run_folders import write_run

from results.header import parse
from results.read.folders import read_runs
from results.studies.small import page
from trainers.run import session

main = command_of_results("study", "small")

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
            session.run(config)
    GlobalHydra.instance().clear()
    return folder


def test_table_says_what_the_summaries_say(output: Path, tmp_path: Path) -> None:
    table = tmp_path / "small.md"
    assert main([str(output), "--allow-modified", "--table", str(table)]) == 0
    text = table.read_text()
    assert (parse(text).command, parse(text).seeds) == ("make small", SEEDS)
    assert "## mlp-digits\n" in text and "4 workers, 50,826 parameters, 5 steps" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| `top_k, density 0.01`")]
    summaries = [json.loads(p.read_text()) for p in sorted(output.glob("mlp-digits-top_k/*/summary.json"))]
    assert len(summaries) == 3
    accuracies = [100 * summary["test/accuracy"] for summary in summaries]
    megabytes = statistics.mean(summary["comm/link_bytes_sent_total"] for summary in summaries) / 1e6
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2] == "0, 1, 2"
    assert cells[3] == f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f}"
    assert cells[4] == "0.996"
    assert cells[6] == f"{megabytes:.4f}"


def test_table_is_rebuilt_byte_for_byte(output: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        main([str(output), "--allow-modified", "--table", str(tmp_path / name)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_page_says_which_presets_it_holds_and_that_budgets_are_not_matched(tmp_path: Path) -> None:
    sent = {"hard_threshold": 8.9e6, "top_k": 19.6e6, "none": 980e6}
    for preset in ("lstm", "neumf"):
        for method, total in sent.items():
            records = [{"step": 1, "comm/link_bytes_sent_total": total, "test/accuracy": 0.9}]
            if preset == "neumf" and method == "top_k":
                records[0]["comm/link_bytes_sent_total"] = 9e6
            name, model = f"small_{preset}-{method}", {"hidden": [len(preset)]}
            write_run(tmp_path, name=name, compressor=method, records=records, model=model)
    matched = [{"step": 1, "comm/link_bytes_sent_total": 19.7e6, "test/accuracy": 0.9}]
    keys = {"compressor": "hard_threshold", "settings": {"threshold": 0.02}, "model": {"hidden": [4]}}
    write_run(tmp_path, name="small_lstm-hard_threshold", records=matched, **keys)
    text = page(read_runs([tmp_path]))
    assert (
        "2 of the 10 presets in `conf/experiment/small`: lstm, neumf. Missing: bert_masked, bert_sst2, "
        in text
    )
    assert "In 1 of 3 pairs the bytes differ by more than 5 %." in text
    methods = ("`hard_threshold, lambda 0.01`", "`top_k, density 0.01`")
    assert f"| small_lstm | {methods[0]} | 8.9 | {methods[1]} | 19.6 | 0.45 | not matched | - |" in text
    assert (
        f"| small_lstm | `hard_threshold, lambda 0.02` | 19.7 | {methods[1]} | 19.6 | 1.01 | matched | "
        "test accuracy, % +0.00 (one seed), no verdict |" in text
    )
    assert f"| small_neumf | {methods[0]} | 8.9 | {methods[1]} | 9 | 0.99 | matched | test acc" in text


def test_an_empty_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: no finished run in {tmp_path}\n"
