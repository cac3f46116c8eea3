"""Wide and long tables of run folders, as csv and parquet files."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.read.folders import read_runs
from results.read.run import Run
from results.tables import tidy as table
from results.tables.tidy import wide_table, write_long

main = command_of_results("table")


def long_table(runs: Sequence[Run], folder: Path) -> pd.DataFrame:
    write_long(runs, folder / "all.parquet")
    return pd.read_parquet(folder / "all.parquet")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Two methods, two seeds; each method has settings that the other lacks."""
    folder = tmp_path / "runs"
    for seed in (0, 1):
        best = {"best": {"test/accuracy": 0.95 + seed / 100}}
        write_run(folder, compressor="top_k", seed=seed, summary=best, optimizer={"lr": None})
        write_run(folder, compressor="hard_threshold", seed=seed, workers=8)
    return folder


def test_wide_has_a_row_per_run_and_a_column_per_setting(output: Path) -> None:
    runs = read_runs([output])
    wide = wide_table(runs)
    first = ["path", "id", "seed", "method", "subject", "commit", "modified"]
    assert list(wide.columns[:7]) == first
    assert wide["path"].tolist() == [run.path.as_posix() for run in runs]
    threshold, top_k = wide.iloc[0], wide.iloc[-1]
    assert (threshold["config.workers"], top_k["config.workers"]) == (8, 4)
    assert threshold["config.compressor.threshold"] == 0.01
    assert math.isnan(top_k["config.compressor.threshold"]) and math.isnan(top_k["config.optimizer.lr"])
    assert top_k["config.optimizer.no_decay"] == '["batch_norm"]'
    assert top_k["config.model._target_"] == "models.mlp.mlp"
    assert set(wide["best.test/accuracy"].dropna()) == {0.95, 0.96}
    assert top_k["comm/bytes_sent_total"] == 2400 and top_k["layers.first.weight.elements"] == 900
    settings = sorted(name for name in wide if name.startswith("config."))
    assert list(wide.columns[7 : 7 + len(settings)]) == settings


def test_long_has_a_row_per_recorded_number(output: Path, tmp_path: Path) -> None:
    runs = read_runs([output])
    long = long_table(runs, tmp_path)
    expected = {
        (run.id, record["step"], record["epoch"], name): value
        for run in runs
        for record in map(json.loads, (run.path / "metrics.jsonl").read_text().splitlines())
        for name, value in record.items()
        if name not in ("step", "epoch")
    }
    found = {(r.id, r.step, r.epoch, r.metric): r.value for r in long.itertuples()}
    assert found == expected and len(long) == len(expected)


def test_long_table_in_several_parts_is_the_same(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(output, seed=9, records=[{"step": 1, "new/metric": 2.5}, {"step": 2}])
    runs = read_runs([output])
    whole = long_table(runs, tmp_path)
    monkeypatch.setattr(table, "RUNS_AT_ONCE", 2)
    pd.testing.assert_frame_equal(whole, long_table(runs, tmp_path), check_categorical=False)
    new = whole[whole["metric"] == "new/metric"]
    assert new["value"].tolist() == [2.5] and new["epoch"].isna().all()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_command_writes_the_same_bytes_twice(output: Path, tmp_path: Path, ending: str) -> None:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        wide, long = (tmp_path / name / f"{kind}.{ending}" for kind in ("wide", "long"))
        assert main([str(output), "--wide", str(wide), "--long", str(long)]) == 0
        made.append((wide.read_bytes(), long.read_bytes()))
    assert made[0] == made[1]
    read = pd.read_csv if ending == "csv" else pd.read_parquet
    runs = read_runs([output])
    assert read(long)["value"].tolist() == long_table(runs, tmp_path)["value"].tolist()
    assert read(long)["id"].astype(str).tolist() == long_table(runs, tmp_path)["id"].tolist()
    assert read(wide)["test/accuracy"].tolist() == [0.9] * 4
    assert b"\r" not in made[0][0] or ending == "parquet"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_that_fails_half_way_leaves_the_earlier_file(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    long = folder / f"long.{ending}"
    assert main([str(output), "--long", str(long)]) == 0
    before = long.read_bytes()

    first = iter(read_runs([output])[:1])

    def half(run: Run) -> Any:
        if next(first, None) is None:
            raise OSError("disk full")
        return of_run(run)

    of_run = table._of_run
    monkeypatch.setattr(table, "_of_run", half)
    monkeypatch.setattr(table, "RUNS_AT_ONCE", 1)
    assert main([str(output), "--long", str(long)]) == 1
    assert long.read_bytes() == before and [*folder.iterdir()] == [long]


def test_a_setting_of_several_kinds_is_text(tmp_path: Path) -> None:
    for seed, value in enumerate((1, 2.5, "auto", None)):
        write_run(tmp_path, seed=seed, bits=value)
    assert sorted(wide_table(read_runs([tmp_path]))["config.bits"].fillna("missing")) == [
        "1",
        "2.5",
        "auto",
        "missing",
    ]
