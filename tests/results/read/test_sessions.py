"""Times and bytes of a run's last session, as ``results breakeven`` counts them."""

import json
from pathlib import Path
from typing import Any

import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.predicted_steps import cost_of_run
from results.read.folders import read_runs

breakeven = command_of_results("breakeven")
RECORD = {
    "time/gradient_seconds": 0.4,
    "time/update_seconds": 0.01,
    "time/reduce_seconds": 0.05,
    "time/communication_seconds": 0.01,
}


def resumed(folder: Path, at: int, records: list[dict[str, float]], **config: Any) -> Path:
    """A run whose last session began at step ``at`` of its own checkpoint."""
    path = write_run(folder, records=records, **config)
    environment = json.loads((path / "environment.json").read_text())
    environment |= {"workers": config["workers"], "resumed_at_step": at}
    environment["earlier"] = [{"workers": config["workers"]}]
    (path / "environment.json").write_text(json.dumps(environment))
    return path


def begun(folder: Path, at: int, records: list[dict[str, float]], **config: Any) -> Path:
    """A run that began at step ``at`` of another run's checkpoint."""
    return resumed(folder, at, records, resume="outputs/other/0123456789", **config)


def record(step: int, epoch: float, total: float, dense: float = 0.0, **times: float) -> dict[str, float]:
    """``total`` and ``dense`` are bytes so far; dense ones are twice as many by default."""
    named = {f"time/{part}_seconds": value for part, value in times.items()}
    sent = {"comm/link_bytes_sent_total": total, "comm/compression_ratio": dense / total if dense else 2.0}
    return {**RECORD, "step": step, "epoch": epoch, **sent, **named}


def test_a_run_that_began_with_other_workers_counts_its_own_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """90 steps of 4 workers with 3000 bytes each, then 45 of 2 workers with 1000 bytes, up to step 225."""
    old = [record(step, step / 30, 3000.0 * step, gradient=0.8, reduce=0.21) for step in (30, 60, 90)]
    new = [
        record(step, step / 60, 270_000 + 1000.0 * own, 540_000 + 4000.0 * own, gradient=0.2, reduce=0.05)
        for step in (190, 200, 225)
        for own in [step - 180]
    ]
    begun(tmp_path, 90, old + new, workers=2)
    assert breakeven([str(tmp_path), "--bandwidth", "64kbit", "--latency-us", "0"]) == 0
    said = capsys.readouterr().out
    assert "| dense | 610.0 | 110.0 | 0.0 | 500.0 |" in said
    assert "| top_k, density 0.01 | 255.0 | 110.0 | 20.0 | 125.0 |" in said


@pytest.mark.parametrize("recorded", [(100, 120), (100, 200, 225)])
def test_step_numbers_may_fall_where_a_run_begins(tmp_path: Path, recorded: tuple[int, ...]) -> None:
    """180 steps of 2 workers, then steps from 91 on of 4 workers."""
    old = [record(step, step / 60, 1000.0 * step, update=0.5) for step in (60, 100, 180)]
    new = [record(step, step / 30, 180_000 + 3000.0 * (step - 90)) for step in recorded]
    folder = begun(tmp_path, 180, old + new, workers=4)
    assert cost_of_run(read_runs([folder])[0], 4) == ((pytest.approx(0.01), 1000.0, 1.0), pytest.approx(0.11))


def test_an_interrupted_run_counts_its_last_session(tmp_path: Path) -> None:
    """Its earlier session had other processes, and so other times."""
    lines = [record(step, step / 30, 3000.0 * step, update=0.5) for step in (10, 20)]
    lines += [record(step, step / 30, 3000.0 * step) for step in (30, 40)]
    folder = resumed(tmp_path, 25, lines, workers=4)
    assert cost_of_run(read_runs([folder])[0], 4) == ((pytest.approx(0.01), 1000.0, 1.0), pytest.approx(0.11))


def test_a_session_without_steps_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resumed(tmp_path, 20, [record(10, 1.0, 3e4), record(20, 2.0, 6e4)], workers=4)
    assert breakeven([str(tmp_path), "--bandwidth", "1gbit"]) == 1
    assert capsys.readouterr().err.endswith(": its last session recorded no time/reduce_seconds\n")


def test_a_run_that_began_with_another_method_counts_its_own_steps(tmp_path: Path) -> None:
    """20 steps with 9000 bytes each, then 20 with 3000."""
    old = [record(step, step / 30, 9000.0 * step) for step in (10, 20)]
    new = [record(step, step / 30, 180_000 + 3000.0 * (step - 20)) for step in (30, 40)]
    folder = begun(tmp_path, 20, old + new, workers=4)
    assert cost_of_run(read_runs([folder])[0], 4)[0][1] == 1000.0


def test_an_interrupted_run_has_bytes_also_if_it_recorded_them_once(tmp_path: Path) -> None:
    """3000 bytes a step over 20 steps, of which the last session did ten."""
    folder = resumed(tmp_path, 10, [record(20, 2.0, 6e4)], workers=4)
    assert cost_of_run(read_runs([folder])[0], 4)[0][1] == 1000.0


def test_a_start_with_one_record_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(tmp_path, 10, [record(10, 1.0, 3e4), record(20, 2.0, 6e4)], workers=4)
    assert breakeven([str(tmp_path), "--bandwidth", "1gbit"]) == 1
    assert capsys.readouterr().err.endswith(
        ": its last session has too few records to count bytes per step\n"
    )


def test_skipped_steps_send_nothing(tmp_path: Path) -> None:
    lines = [
        {**record(step, step / 30, 3000.0 * step / 2), "train/steps_skipped": step / 2} for step in (10, 20)
    ]
    folder = write_run(tmp_path, workers=4, records=lines)
    assert cost_of_run(read_runs([folder])[0], 4)[0][1] == 1000.0
