"""The AutoLRS study's comparison of schedules, from small run folders."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.read.folders import finished_runs
from results.studies.autolrs import schedules_of, steps_in_all, steps_until

main = command_of_results("study", "autolrs")

SCHEDULE = "trainers.schedules.schedules."
ACCURACY = {  # after 100, 200, 300 and 400 steps in total
    "Constant": (0.5, 0.6, 0.7, 0.8),
    "Cosine": (0.5, 0.6, 0.8, 0.9),
    "WarmupStep": (0.3, 0.4, 0.5, 0.6),
}


def plain_run(
    folder: Path,
    schedule: str,
    seed: int,
    lr: float = 0.1,
    *,
    accuracy: Sequence[float] | None = None,
    rates: Sequence[float] | None = None,
) -> None:
    values = accuracy or ACCURACY[schedule]
    records = [
        {"step": 100 * (i + 1), "train/learning_rate": rate, "test/accuracy": value + 0.01 * seed}
        for i, (value, rate) in enumerate(zip(values, rates or [lr] * 4, strict=True))
    ]
    records[-1]["comm/link_bytes_sent_total"] = 4e6
    keys = {"schedule": {"_target_": SCHEDULE + schedule}, "optimizer": {"lr": lr}}
    write_run(folder, compressor="none", name="net-none", seed=seed, records=records, **keys)


def searched_run(folder: Path, seed: int) -> None:
    """Two stages: 50 steps of trials and 50 of training, then 100 and 200; evaluated after 50, 100, 250."""
    records = [
        {"step": 0, "autolrs/search_steps": 50.0, "autolrs/rate": 0.3},
        {"step": 50, "train/learning_rate": 0.3, "test/accuracy": 0.4 + 0.01 * seed},
        {"step": 50, "autolrs/search_steps": 150.0, "autolrs/rate": 0.2},
        {"step": 100, "train/learning_rate": 0.2, "test/accuracy": 0.8 + 0.01 * seed},
        {"step": 250, "train/learning_rate": 0.2, "test/accuracy": 0.85 + 0.01 * seed},
    ]
    records[-1] |= {"comm/link_bytes_sent_total": 2.5e6}
    summary = {"autolrs/search_link_bytes_sent_total": 1.5e6}
    keys = {"schedule": {"_target_": "trainers.schedules.autolrs.AutoLRS"}, "summary": summary}
    write_run(folder, compressor="none", name="net-none", seed=seed, records=records, **keys)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    for seed in (0, 1, 2):
        for schedule in ACCURACY:
            rates = {"Cosine": (0.09, 0.07, 0.03, 0.01)}.get(schedule)
            plain_run(tmp_path / "runs", schedule, seed, rates=rates)
        searched_run(tmp_path / "runs", seed)
    for lr in (0.01, 0.1):
        plain_run(tmp_path / "tuning", "Constant", 3, lr)
    return tmp_path


def test_trials_count_from_the_stage_that_they_were_for(study: Path) -> None:
    ((_, by_schedule),) = schedules_of(finished_runs([study / "runs"])).items()
    searched, constant = by_schedule["autolrs"][0], by_schedule["constant"][0]
    # the evaluation after 50 steps is before the trials of the next stage
    assert steps_in_all(searched, np.array([50, 100, 250])).tolist() == [100, 250, 400]
    assert steps_in_all(constant, np.array([100, 400])).tolist() == [100, 400]
    assert steps_until(searched, "test/accuracy", 0.8, True) == 250
    assert steps_until(searched, "test/accuracy", 0.4, False) == 100
    assert steps_until(searched, "test/accuracy", 0.9, True) is None


def test_table_says_what_was_reached_sent_and_saved(study: Path, capsys: pytest.CaptureFixture) -> None:
    table = study / "table.md"
    arguments = [str(study / "runs"), "--tuning", str(study / "tuning"), "--table", str(table)]
    assert main([*arguments, "--figures", str(study / "figures")]) == 0
    rows = {
        cells[1]: cells[2:-1]
        for line in table.read_text().splitlines()
        if line.startswith("|")
        for cells in [[cell.strip() for cell in line.split("|")]]
    }
    seeds, reached, against, sent, saved = rows["AutoLRS"]
    assert (seeds, reached.split(" ±")[0], sent) == ("0, 1, 2", "86.00", "4.00")
    assert against == "+5.00"
    assert saved == "37.50 %"  # 250 steps in total; the constant rate needs 400
    assert rows["cosine"][4] == "25.00 %"
    assert rows["steps: a tenth at 1/2 and 3/4"][2:] == ["-20.00", "4.00", "never"]
    assert rows["constant, tuned"][2] == rows["constant, tuned"][4] == "-"
    assert "with seed 3, and their test accuracy, %: 0.01: 83.00, 0.1: 83.00." in table.read_text()
    assert {path.suffix for path in (study / "figures").iterdir()} == {".png"}
    assert str(table) in capsys.readouterr().out


def test_steps_in_which_a_schedule_is_the_constant_rate_save_nothing(tmp_path: Path) -> None:
    """The constant rate has its final quality after 200 steps; until then the step schedule has this rate."""
    for seed in (0, 1):
        plain_run(tmp_path / "runs", "Constant", seed, accuracy=(0.5, 0.8, 0.7, 0.8))
        late = (0.5, 0.8, 0.9, 0.9) if seed else (0.5, 0.7, 0.9, 0.9)
        plain_run(tmp_path / "runs", "WarmupStep", seed, accuracy=late, rates=(0.1, 0.1, 0.01, 0.01))
        plain_run(
            tmp_path / "runs",
            "Cosine",
            seed,
            accuracy=(0.5, 0.7, 0.8, 0.9),
            rates=(0.09, 0.07, 0.03, 0.01),
        )
    table = tmp_path / "table.md"
    assert main([str(tmp_path / "runs"), "--table", str(table)]) == 0
    rows = [line for line in table.read_text().splitlines() if line.startswith("| ")]
    ((step, cosine),) = [[row.split(" | ")[-1].strip(" |") for row in rows[2:]]]
    assert step == "one run until then in seed 1"
    assert cosine == "-50.00 % (2 seeds)"  # 300 steps; the constant rate needs 200


def test_a_folder_without_runs_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_another_schedule_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    keys = {"schedule": {"_target_": SCHEDULE + "Linear"}, "optimizer": {"lr": 0.1}}
    records = [{"step": 100, "test/accuracy": 0.5, "comm/link_bytes_sent_total": 1.0}]
    write_run(tmp_path, compressor="none", name="net-none", seed=0, records=records, **keys)
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "error: runs must be of schedule=autolrs, constant, warmup_step, cosine, got Linear: " in said.err
    assert not said.out
