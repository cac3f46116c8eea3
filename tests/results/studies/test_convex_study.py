"""The convex study's figures and reproduction table, from short runs."""

import copy
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from configs import resolved
from hydra.core.global_hydra import GlobalHydra
from libsvm_files import write_rows
from results_commands import command_of_results

from results.read.folders import read_runs
from results.read.matching import by_method, by_setting
from results.studies import convex
from results.studies.catalogue import load
from trainers.run import session

main = command_of_results("study", "convex")
page = partial(load("convex").page, further="paper")

STEP = "feedback.scale step"  # a setting of every preset
METHODS = (
    ["compressor=none"],
    ["compressor=top_k"],
    ["compressor=hard_threshold", "compressor.threshold=1e-3"],
)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two settings, three methods and three seeds."""
    root = tmp_path_factory.mktemp("results")
    write_rows(root, "few", rows=60, features=20)
    common = [
        "data.name=few",
        f"data.root={root}",
        f"output={root / 'runs'}",
        "tracker=none",
        "budget.density=0.1",
    ]
    common += ["workers=4", "trainer.steps=40", "trainer.log_every=5"]
    for experiment in ("madelon_sgd", "heterogeneity"):
        for method in METHODS:
            config = resolved(f"experiment=convex/{experiment}", *common, *method)
            config["name"] = f"{experiment}-{method[0].split('=')[1]}"
            for seed in (0, 1, 2):
                session.run(copy.deepcopy(config) | {"seed": seed})
    GlobalHydra.instance().clear()
    return root / "runs"


def test_curves_are_what_the_records_say(output: Path) -> None:
    found = next(run for run in read_runs([output]) if run.compressor == "top_k")
    lines = [json.loads(line) for line in (found.path / "metrics.jsonl").read_text().splitlines()]
    expected = {r["step"]: r["convex/suboptimality"] for r in lines}
    assert found.curve("convex/suboptimality").to_dict() == expected
    ends = {kind: sent.factor * found.curve(sent.name).iloc[-1] for kind, sent in convex.BITS.items()}
    assert ends == {"paper": 32 * 2 * 40, "ledger": 8 * (8 + 4) * 2 * 40}
    assert convex.increase_per_step(convex.BITS["paper"], found).tolist() == [64.0] * 8


def test_a_method_that_the_paper_does_not_count_has_no_such_bits(output: Path) -> None:
    """A method with inexact values has no line in the panels of these bits and a dash in the table."""
    name = "comm/paper_bits_total"
    runs = [
        replace(
            found,
            records=found.records.drop(columns=name),
            summary={key: value for key, value in found.summary.items() if key != name},
        )
        if found.compressor == "top_k"
        else found
        for found in read_runs([output])
    ]
    (group, *_) = by_setting(runs)
    first, *_, last = convex.draw(group, "paper").axes
    for panel in (first, last):
        assert drawn_in(panel) == {"hard_threshold, lambda 0.001", "none"}
    assert len(drawn_in(convex.draw(group, "ledger").axes[0])) == 3
    ends = page(runs).split("## Where each run ends")[1].splitlines()
    (row, *_) = [line for line in ends if "top_k" in line]
    assert row.count("| - |") == 1 and "| - |" not in next(line for line in ends if "hard_threshold" in line)


def drawn_in(axis: Any) -> set[str]:
    return {line.get_label() for line in axis.lines if not line.get_label().startswith("_")}


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_command_draws_and_writes_the_same_bytes_each_time(output: Path, tmp_path: Path, times: int) -> None:
    made = []
    for folder in "ab"[:times]:
        table = tmp_path / folder / "table.md"
        table.parent.mkdir()
        arguments = [
            str(output),
            "--allow-modified",
            "--figures",
            str(tmp_path / folder),
            "--table",
            str(table),
        ]
        assert main(arguments) == 0
        made.append({path.name: path.read_bytes() for path in sorted((tmp_path / folder).iterdir())})
    assert set(made[0]) == {"madelon_sgd.png", "heterogeneity.png", "table.md"}
    assert all(files == made[0] for files in made)


def test_figure_has_a_line_per_method_and_the_means_of_the_seeds(output: Path) -> None:
    (group,) = [g for g in by_setting(read_runs([output])) if g[0].config["name"].startswith("madelon_sgd")]
    figure = convex.draw(group, "ledger")
    legend = [text.get_text() for text in figure.legends[0].get_texts() if text.get_text().strip()]
    assert len(legend) == 3 and legend[0].startswith("hard_threshold, lambda 0.001 (")
    assert f", {STEP}; mean over seeds 0, 1, 2; dots: single seeds, bars: 95" in " ".join(
        figure.texts[1].get_text().split()
    )
    axis = figure.axes[1]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("epochs", "f(x) - f*")
    runs = by_method(group)["none"]
    mean = pd.concat([run.curve("convex/suboptimality") for run in runs], axis=1).mean(axis=1)
    (dense,) = [line for line in axis.lines if line.get_label() == "none"]
    assert dense.get_ydata() == pytest.approx(mean.to_numpy())
    assert len(drawn_in(axis)) == len({line.get_color() for line in axis.lines}) == 3
    assert figure.axes[0].get_xlabel() == convex.BITS["ledger"].label


def test_one_seed_says_so(output: Path) -> None:
    group = [
        run for run in read_runs([output]) if run.seed == 0 and run.config["name"].startswith("madelon_sgd")
    ]
    assert "one seed only (0)" in convex.draw(group, "paper").texts[1].get_text()
    assert "(one seed)" in page(group)


def test_table_holds_what_the_summaries_say(output: Path) -> None:
    runs = read_runs([output])
    table = page(runs)
    assert "| gisette_scale | L | 842.8680386 | not run: no file |  |" in table
    assert "| madelon_sgd | top_k, density 0.002 | mean ‖e‖² | peak | read | 0.0003 | not run |" in table
    row = next(
        line
        for line in table.splitlines()
        if line.startswith(f"| madelon_sgd | top_k, density 0.1, {STEP} | 3 |")
    )
    ours = [run.summary["compression/total_error"] for run in runs if "madelon_sgd-top_k" in str(run.path)]
    assert f"{sum(ours) / 3:.4g} ± " in row
    split = next(
        line for line in table.splitlines() if line.startswith(f"| iid | top_k, density 0.1, {STEP}; hard_")
    )
    assert split.count("±") == 4  # bytes are the same in every seed


def test_values_at_equal_bytes_by_hand(output: Path) -> None:
    found = next(run for run in read_runs([output]) if "heterogeneity-top_k" in str(run.path))
    curve = found.curve("convex/suboptimality")
    per_step = found.summary["comm/link_bytes_sent_total"] / 40
    at = convex.value_at_bytes
    assert at(found, "convex/suboptimality", 20 * per_step) == curve[20]  # no other record in the last tenth
    assert at(found, "convex/suboptimality", 24.9 * per_step) == curve[20]
    assert at(found, "convex/suboptimality", 0.5 * per_step) == curve[0]  # before the first record of bytes
    assert convex.END_SHARE == 0.1 and curve.index[1] == 5
    found.records.loc[:, "comm/link_bytes_sent_total"] *= 1e-6  # now all records are close together
    found.records.loc[3:, "comm/link_bytes_sent_total"] = [95.0, 97.0, 100.0, 120.0, 130.0, 140.0]
    assert at(found, "convex/suboptimality", 100.0) == pytest.approx(curve.iloc[3:6].mean())


def copied(output: Path, to: Path, part: str, **changes: dict) -> Path:
    """A copy of one run folder with another config."""
    source = sorted(path.parent for path in output.rglob("summary.json") if part in str(path))[0]
    shutil.copytree(source, to)
    config = yaml.safe_load((to / "config.yaml").read_text())
    for group, values in changes.items():
        if isinstance(values, dict):
            config[group] |= values
        else:
            config[group] = values
    (to / "config.yaml").write_text(yaml.safe_dump(config))
    return to


def test_only_the_papers_own_settings_stand_beside_its_numbers(output: Path, tmp_path: Path) -> None:
    same = {
        "compressor": {"density": 0.002},
        "workers": 20,
        "trainer": {"steps": 3000},
        "data": {"name": "madelon"},
        "seed": 5,
    }
    copied(output, tmp_path / "same", "madelon_sgd-top_k", **same)
    (run,) = read_runs([tmp_path / "same"])
    errors = run.curve("compression/error")
    table = page([run])
    row = "| madelon_sgd | top_k, density 0.002 | mean ‖e‖² | peak | read | 0.0003 | "
    assert (
        row + f"{errors.max():.4g} (one seed) | {errors.max() / 3e-4:.2f} | 1/1.26 to 1.26 | differs |"
        in table
    )
    last = f"{errors.iloc[-1]:.4g} (one seed) | {errors.iloc[-1] / 4e-5:.2f} |"
    assert f"| end | read | 4e-05 | {last}" in table
    start = run.curve("convex/distance_squared").iloc[0]
    assert f"| ‖x - x\\*‖² | start | by rule | 5e-06 | {start:.4g} (one seed) |" in table
    assert "- madelon\\_sgd" not in table and "- madelon_sgd, top_k, density 0.002: not reproduced, " in table
    assert "Not read, so not compared: f(x) - f\\* after the start" in table
    for number, change in enumerate(
        (
            {"trainer": {"steps": 7}},
            {"workers": 4},
            {"feedback": {"_target_": "compressors.feedback.no_feedback", "scale": None}},
            {"model": {"l2": 0.5}},
            {"data": {"partition": "by_label"}},
        )
    ):
        copied(output, tmp_path / str(number), "madelon_sgd-top_k", **(same | change))
        table = page(read_runs([tmp_path / str(number)]))
        assert "| madelon_sgd | top_k, density 0.002 | mean ‖e‖² | peak | read | 0.0003 | not run |" in table


def test_title_says_whose_seeds_differ(output: Path, tmp_path: Path) -> None:
    copied(output, tmp_path / "a", "madelon_sgd-top_k", seed=0)
    copied(output, tmp_path / "b", "madelon_sgd-hard_threshold", seed=1)
    runs = read_runs([tmp_path])
    assert "(others: see the legend)" in convex.title(runs, by_method(runs))[1]


def test_a_run_of_another_name_keeps_all_of_it(output: Path, tmp_path: Path) -> None:
    """Only a method at the end of a name is removed; a name that the user chose may have none."""
    for number, part in enumerate(("top_k", "hard_threshold")):
        name = {"name": "heterogeneity-by-hand", "data": {"partition": "by_label"}}
        copied(output, tmp_path / str(number), f"heterogeneity-{part}", **name)
    runs = read_runs([tmp_path])
    assert set(dict(convex.figures(runs, "paper"))) == {"heterogeneity-by-hand-by_label"}
    table = page(runs)
    assert "| heterogeneity-by-hand by_label | top_k" in table and "## Heterogeneous workers" not in table
