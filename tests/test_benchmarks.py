"""Benchmarks: methods, ratios and tables; complete benchmarks take minutes."""

from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import checkpoint, compress, load, rounds


def test_compress_builds_every_method() -> None:
    reducers = {str(case): case.reducer(0.01, 1000) for case in compress.cases()}
    assert {"none", "top_k", "hard_threshold"} <= reducers.keys()
    assert "threshold=2.5758" in repr(reducers["hard_threshold"])  # 1 % of normal draws exceed it


def test_compress_measures_methods_beside_references(capsys: pytest.CaptureFixture) -> None:
    options = Namespace(
        methods=["none", "top_k"], density=0.01, workers=2, elements=1000, rounds=1, residuals="bf16"
    )
    compress.measure("global", options)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    sent = {row[0]: row[-1] for row in rows}
    assert sent["| none"] == "1,000 |" and sent["| top_k"] == "10 |"
    assert {"| in-place add", "| torch.topk", "| squared_norm"} < sent.keys()


def test_load_divides_a_run_into_tenths(tmp_path: Path) -> None:
    *rows, complete = load.measure_steps(20, str(tmp_path))
    assert [row.split(" | ")[0] for row in rows[1:]] == [
        f"| {step} to {step + 2}" for step in range(2, 20, 2)
    ]
    assert complete.endswith("every step once and in order: True")


def test_checkpoint_finds_captures_writes_and_steps_beside_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    words = ["--steps", "20", "model=mlp", "model.hidden=[16]", "workers=2"]
    monkeypatch.setattr("sys.argv", ["checkpoint.py", *words])
    checkpoint.main()
    printed = capsys.readouterr().out
    assert "| 2 checkpoints of 0 MiB |" in printed and "| share of training" in printed


def test_ratios_are_those_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine takes twice as long in the second round; preparations are not timed."""
    clock = [0.0]
    costs = {"one": 1.0, "three": 3.0}
    calls = dict.fromkeys(costs, 0)
    monkeypatch.setattr(rounds.time, "process_time", lambda: clock[0])

    def work(name: str) -> None:
        clock[0] += costs[name] * (1, 1, 2)[calls[name]]
        calls[name] += 1

    def prepare(name: str) -> None:
        clock[0] += 100

    found = rounds.seconds_in_rounds({name: lambda name=name: work(name) for name in costs}, 2, prepare)
    assert found == {"one": [1, 2], "three": [3, 6]}
    assert rounds.ratio(found["three"], found["one"]) == 3
