"""``python -m results breakeven``: times from runs and from a measured model, and refused input."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from results_commands import command_of_results
from run_folders import distributed, write_run

from results.compare.measures import LINK_BYTES
from trainers.network_model.step_times import Cost, Line

main = command_of_results("breakeven")
COSTS = [
    Cost("dense", 4e7, 0.0, Line(0.002), Line(0.0, 2.0)),
    Cost("fp16", 2e7, 0.0, Line(0.01), Line(0.0, 2.0)),
    Cost("top_k", 0.0, 8e4, Line(0.02, 0.001), Line(2.0)),
]
ANSWER = {
    "compute_seconds": 0.05,
    "costs": COSTS,
    "parameters": 10_000_000,
    "backend": [1e10, 0.0],
    "device": "cpu",
    "batch_size": 32,
    "methods": "Top-k and others",
}
RECORD = {
    "time/step_seconds": 0.6,
    "time/gradient_seconds": 0.4,
    "time/update_seconds": 0.01,
    "time/reduce_seconds": 0.05,
    "time/communication_seconds": 0.01,
    "comm/link_bytes_sent_total": 3000.0,
    "comm/compression_ratio": 6.0,  # 1000 values of 4 bytes, 1.5 times, by 1000 bytes in a step
}


def run(folder: Path, **record: float) -> Path:
    lines = [{"step": step, **RECORD, **record} for step in (1, 2, 3)]
    return write_run(folder, workers=4, records=lines)


def rows(text: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {row[0]: row[1:] for row in cells if len(row) == 7 and row[1][:1].isdigit()}


def test_runs_are_compared_with_dense_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Per worker and step: 100 + 10 ms of compute, 10 ms of compression, 125 ms for 1000 bytes at 8 kB/s."""
    run(tmp_path)
    assert main([str(tmp_path), "--bandwidth", "64kbit", "unlimited", "--latency-us", "0"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("the latency of runs without comm/rounds counts once per step, also if ")
    slow, fast = said.split("## 4 workers, unlimited")
    method = next(name for name in rows(slow) if name.startswith("top_k"))
    assert rows(slow)[method][:4] == ["245.0", "110.0", "10.0", "125.0"]
    assert rows(fast)[method][:4] == ["120.0", "110.0", "10.0", "0.0"]
    assert "best: dense" in fast


def test_nodes_have_two_bandwidths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Per node: 20 ms of compression, 125 ms for 1000 bytes. Inside, 4000 + 500 bytes leave a worker: 1 s."""
    lines = [{**RECORD, "step": step, "comm/compression_ratio": 4.0} for step in (1, 2, 3)]
    write_run(tmp_path, workers=4, nodes=2, records=lines)
    words = [str(tmp_path), "--bandwidth", "64kbit", "--latency-us", "0"]
    assert main([*words, "--inside", "36kbit"]) == 0
    said = capsys.readouterr().out
    assert "## 4 workers in 2 nodes, 64kbit" in said
    assert "2 workers in a node, links inside 36 kbit/s" in said
    assert rows(said)["top_k, density 0.01"][:4] == ["1,255.0", "110.0", "20.0", "1,125.0"]
    assert rows(said)["dense"][3] == "1,833.3"  # 4000 bytes across, 4000 + 2000 inside
    assert main(words) == 0
    assert rows(capsys.readouterr().out)["top_k, density 0.01"][3] == "125.0"
    assert main([*words, "--nodes", "4"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "error: --nodes must be that of the runs, 2, got 4"
    run(tmp_path / "flat")
    assert main([str(tmp_path / "flat"), *words[1:], "--inside", "36kbit"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "error: --inside has no effect on runs without nodes"


def test_rounds_are_those_of_the_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """125 ms for the bytes, and 2 ms for each of 8 rounds."""
    lines = [{**RECORD, "step": step, "comm/rounds": 8.0} for step in (1, 2, 3)]
    write_run(tmp_path, workers=4, records=lines)
    assert main([str(tmp_path), "--bandwidth", "64kbit", "--latency-us", "2000"]) == 0
    said = capsys.readouterr().out
    assert "counts once" not in said
    assert rows(said)["top_k, density 0.01"][3] == "141.0"


def test_compression_is_that_of_a_worker_on_its_own_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 40 ms in a process with 4 workers, each has 8 ms, and 8 ms are for the sum, which each computes."""
    line = {**RECORD, "step": 3}
    too_low = "the compression of runs without time/compression_seconds has a share of the sum: it is too low"
    for name, added, seconds, is_told in (
        ("before", {}, "10.0", True),
        ("now", {"time/compression_seconds": 0.016}, "16.0", False),
    ):
        write_run(tmp_path / name, workers=4, records=[line | added])
        assert main([str(tmp_path / name), "--bandwidth", "unlimited"]) == 0
        said = capsys.readouterr().out
        assert rows(said)["top_k, density 0.01"][2] == seconds and (too_low in said) == is_told


def test_seeds_of_a_method_are_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, seconds in enumerate((0.05, 0.09, 0.25)):
        lines = [{**RECORD, "step": 3, "time/reduce_seconds": seconds}]
        write_run(tmp_path, workers=4, seed=seed, records=lines)
    assert main([str(tmp_path), "--bandwidth", "unlimited"]) == 0
    found = rows(capsys.readouterr().out)
    assert len(found) == 3
    assert next(row for name, row in found.items() if name.startswith("top_k"))[2] == "20.0"


def test_settings_of_a_method_have_a_row_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1000 and 500 bytes of a worker in a step, of two seeds each."""
    for scope, sent in (("layer", 3000.0), ("global", 1500.0)):
        for seed in (0, 1):
            ratio = 18_000 / sent
            lines = [{**RECORD, "step": 3, LINK_BYTES: sent, "comm/compression_ratio": ratio}]
            write_run(tmp_path, workers=4, scope=scope, seed=seed, records=lines)
    dense = [{**RECORD, "step": 3}]
    write_run(tmp_path, workers=4, compressor="none", optimizer={"lr": 0.5}, records=dense)
    assert main([str(tmp_path), "--bandwidth", "64kbit", "--latency-us", "0"]) == 0
    found = rows(capsys.readouterr().out)
    assert found["top_k, density 0.01, scope layer"][3] == "125.0"
    assert found["top_k, density 0.01, scope global"][3] == "62.5" and len(found) == 4


def test_a_step_of_local_steps_has_a_part_of_an_exchange(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """H = 8 in 2 fragments: 4 local steps share 110 ms of compute, 10 ms of compression, 125 ms of bytes."""
    local = {"_target_": "trainers.local.LocalSteps", "steps": 8, "fragments": 2}
    lines = [{**RECORD, "step": step, "comm/compression_ratio": 3.0} for step in (1, 2, 3)]  # half the model
    for compressor in ("top_k", "none"):
        write_run(tmp_path, workers=4, compressor=compressor, local=local, records=lines)
    write_run(tmp_path, workers=4, local={**local, "delay": 2}, records=lines)  # hides 55 of 125 ms
    assert main([str(tmp_path), "--bandwidth", "64kbit", "--latency-us", "0"]) == 0
    found = rows(capsys.readouterr().out)
    for name, own in found.items():
        expected = ["61.2", "27.5", "2.5", "31.2"] if "local" in name else ["777.5", "27.5", "0.0", "750.0"]
        expected = ["47.5", "27.5", "2.5", "17.5"] if "local.delay 2" in name else expected
        assert own[:4] == expected or name == "fp16", found
    assert len(found) == 5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"trainer": {"batch_size": 64}}, "trainer.batch_size, got 64 and 32"),
        ({"model": {"hidden": [9]}}, "model.hidden, got [9] and [256, 128]"),
    ],
)
def test_compute_of_different_runs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], said: str
) -> None:
    run(tmp_path)
    lines = [{**RECORD, "step": 3}]
    write_run(tmp_path, workers=4, compressor="random_k", records=lines, **settings)
    words = [str(tmp_path), "--bandwidth", "64kbit"]
    assert main(words) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    compares = "--compute-ms compares them at a given time of compute"
    assert last == f"error: the runs must have one {said}; {compares}"
    assert main([*words, "--compute-ms", "50"]) == 0


def test_times_of_two_machines_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path)
    folder = write_run(tmp_path, workers=4, compressor="random_k", records=[{**RECORD, "step": 3}])
    path = folder / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"processor": "another", "cores": 3}))
    assert main([str(tmp_path), "--bandwidth", "64kbit", "--compute-ms", "50"]) == 1
    assert "must be of one machine, got a processor, 2 cores and another, 3 cores" in capsys.readouterr().err


def test_compute_is_that_of_runs_without_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gradients of 100 ms per worker; 3 s of dense training contain a wait."""
    run(tmp_path)
    waits = [{**RECORD, "step": 3, "time/gradient_seconds": 3.0}]
    distributed(write_run(tmp_path, workers=4, compressor="none", records=waits), 4)
    words = [str(tmp_path), "--bandwidth", "64kbit"]
    assert main(words) == 0
    assert {row[1] for row in rows(capsys.readouterr().out).values()} == {"110.0"}


def test_compute_that_is_not_known_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exact = [{**RECORD, "step": 3, "compression/total_error": 0.0}]
    distributed(write_run(tmp_path, workers=4, compressor="random_k", records=exact), 4)
    assert main([str(tmp_path), "--bandwidth", "64kbit"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: compute is not known: all runs may overlap it")
    assert said.endswith("(breakeven takes it as --compute-ms)")
    assert main([str(tmp_path), "--bandwidth", "64kbit", "--compute-ms", "50"]) == 0
    assert {row[1] for row in rows(capsys.readouterr().out).values()} == {"50.0"}


@pytest.mark.parametrize(("ratio", "dense"), [(6.0, "750.0"), (12.0, "1,500.0")])
def test_dense_bytes_are_those_of_the_dtype(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ratio: float, dense: str
) -> None:
    """1000 values of 4 or 8 bytes, 1.5 times, at 8 kB/s; fp16 has 2 bytes."""
    run(tmp_path, **{"comm/compression_ratio": ratio})
    assert main([str(tmp_path), "--bandwidth", "64kbit", "--latency-us", "0"]) == 0
    found = rows(capsys.readouterr().out)
    assert found["dense"][3] == dense and found["fp16"][3] == "375.0"


def test_a_model_is_measured_by_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, Any]] = []

    def measure(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(json.loads(command[-1]))
        return SimpleNamespace(returncode=0, stdout=json.dumps(ANSWER) + "\n", stderr="")

    monkeypatch.setattr(subprocess, "run", measure)
    words = ["--model", "resnet50", "--workers", "16", "--density", "0.01", "--bandwidth", "1gbit"]
    assert main([*words, "trainer.batch_size=32"]) == 0
    assert asked[0]["overrides"][:2] == ["model=resnet50", "trainer.batch_size=32"]
    assert asked[0]["settings"] == {"density": 0.01} and asked[0]["compute_seconds"] is None
    said = capsys.readouterr().out
    assert "resnet50: 10,000,000 parameters" in said and "best: top_k, 6.90 times as fast as dense" in said
    assert "ms, measured on cpu; Top-k and others\n" in said
    assert "\nlink 1 Gbit/s, collectives at most 10 Gbit/s, 50 µs per message\n" in said
    # 15 x 2 / 16 x 40 MB at 125 MB/s and 30 rounds of 50 us
    assert rows(said)["dense"][:4] == ["653.5", "50.0", "2.0", "601.5"]
    assert main([*words, "--local-steps", "100"]) == 0
    found = rows(capsys.readouterr().out)
    assert found["dense"][0] == "653.5" and found["dense, H = 100"][:4] == ["56.0", "50.0", "0.0", "6.0"]
    assert len(found) == 4
