"""Benchmarks: methods, ratios and tables; complete benchmarks take minutes."""

from argparse import Namespace

import pytest

from benchmarks import compress, rounds


def test_compress_builds_every_method() -> None:
    reducers = {str(case): case.reducer(0.01, 1000) for case in compress.cases()}
    assert {"none", "top_k", "hard_threshold"} <= reducers.keys()
    assert "threshold=2.5758" in repr(reducers["hard_threshold"])  # 1 % of normal draws exceed it


def test_compress_measures_methods_beside_references(capsys: pytest.CaptureFixture) -> None:
    options = Namespace(methods=["none", "top_k"], density=0.01, workers=2, elements=1000, rounds=1)
    compress.measure("global", options)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    sent = {row[0]: row[-1] for row in rows}
    assert sent["| none"] == "1,000 |" and sent["| top_k"] == "10 |"
    assert {"| in-place add", "| torch.topk", "| squared_norm"} < sent.keys()


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
