"""``trainer.nonfinite``: steps with a NaN stop the run or are skipped; metrics that overflow are absent."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import command
from processes import run_in_processes
from skipping import BAD_STEPS, STEPS, Records, stop, train, train_in_two, trainer
from torch import Tensor
from training import WORKERS

from compressors.api import Sparse, Step
from compressors.kernels.choice import chosen
from compressors.top_k import TopK
from trainers.checkpoint.state import TrainingState
from trainers.comm.communicator import Communicator
from trainers.loop import run
from trainers.step.advance import SKIPPED_IN_A_ROW
from trainers.step.gradients import NonFiniteGradientError


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    (found,) = run_in_processes(train, 1)  # with its own number of threads
    return found


def test_a_skipped_step_changes_nothing(alone: dict[str, Any]) -> None:
    """Weights, buffers, moments, residuals, states of losses and totals are unchanged."""
    states = alone["states"]
    assert {"model/norm.running_mean", "optimizer/0/momentum_buffer"} <= states[2].keys()
    assert any("memory" in name for name in states[2]) and any("reducer" in name for name in states[2])
    for step in range(2, STEPS + 1):
        assert same(states[step], states[step - 1]) == (step in BAD_STEPS), step


def test_skipped_steps_are_records(alone: dict[str, Any]) -> None:
    """Also between logged steps. Nothing is sent in a skipped step, and the totals are unchanged."""
    records = {record["step"]: record for record in alone["records"]}
    assert list(records) == [2, 3, 4, 6, 7, 8]
    assert [record["train/steps_skipped"] for record in records.values()] == [0, 1, 2, 2, 3, 3]
    for step in BAD_STEPS:
        record = records[step]
        assert "train/loss" not in record and record["epoch"] == step / 4
        for name in ("compression/error", "comm/bytes_sent", "compression/density"):
            assert record[name] == 0
        before = records[max(other for other in records if other < step)]
        if step in (3, 4):
            assert record["comm/bytes_sent_total"] == before["comm/bytes_sent_total"] > 0
    assert records[8]["compression/density_mean"] == records[2]["compression/density_mean"]
    json.dumps(alone["records"], allow_nan=False)


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_skipping_does_not_depend_on_the_processes(alone: dict[str, Any], processes: int) -> None:
    found = run_in_processes(train, processes)
    for one in found:
        assert one["records"] == alone["records"]
    for step, expected in alone["states"].items():
        merged = {name: t for one in reversed(found) for name, t in one["states"][step].items()}
        assert same(merged, expected)


@pytest.mark.parametrize("step", [3, 5])
def test_going_on_beside_a_skipped_step(alone: dict[str, Any], step: int) -> None:
    (found,) = run_in_processes(train_in_two, 1, step)
    assert found["records"] == alone["records"]
    assert same(found["end"], alone["states"][STEPS])
    assert found["skipped"] == 3


def test_stopping_is_the_default() -> None:
    records = Records()
    with pytest.raises(NonFiniteGradientError, match=r"^step 3: the gradient of worker 2 is not finite"):
        run(trainer(Communicator(WORKERS), nonfinite="stop"), records)
    assert [record["step"] for record in records] == [2]
    assert "train/steps_skipped" not in records[0]


@pytest.mark.parametrize("nonfinite", ["stop", "skip"])
@pytest.mark.parametrize("steps", [3, STEPS])
def test_weights_that_are_not_finite_end_the_run(
    nonfinite: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compressor sends NaN in step 3, the last one or not: no gradient is at fault, and none can help."""

    def poisoned(self: TopK, x: Tensor, step: Step) -> Sparse:
        sent = encode(self, x, step)
        return Sparse(sent.values * math.nan, sent.indices) if step.number == 2 else sent

    encode = TopK.encode
    monkeypatch.setattr(TopK, "encode", poisoned)
    said = r"^step 3: a weight is not finite in layer \w+, though the workers' gradients were: "
    with chosen("reference"), pytest.raises(NonFiniteGradientError, match=said):
        run(trainer(Communicator(WORKERS), nonfinite=nonfinite, bad_steps={}, steps=steps), Records())


def test_a_weight_that_is_not_finite_at_the_start_is_no_fault_of_a_step() -> None:
    training = trainer(Communicator(WORKERS), nonfinite="skip", bad_steps={})
    with torch.no_grad():
        next(training.model.parameters()).view(-1)[0] = math.nan
    with pytest.raises(
        NonFiniteGradientError, match=r"^a weight is not finite in layer \S+ before the first"
    ):
        run(training, Records())


@pytest.mark.parametrize(("processes", "dense"), [(1, False), (2, False), (4, False), (4, True)])
def test_all_processes_stop_where_one_has_a_fault(processes: int, dense: bool) -> None:
    """No process updates its weights. The error names the first layer with a non-finite gradient."""
    for found in run_in_processes(stop, processes, dense):
        assert found["said"] == "step 3: the gradient of worker 2 is not finite in layer scale"
        for name, weight in found["weights"].items():
            assert torch.equal(weight, found["before"][f"model/{name}"])


def test_too_many_in_a_row_end_the_run_in_one_line(tmp_path: Path) -> None:
    small = ["model=mlp", "model.hidden=[16]", "workers=4", "trainer.batch_size=8", "tracker=none"]
    overrides = [*small, "optimizer.lr=1e30", "trainer.steps=50", "trainer.nonfinite=skip"]
    result = command(*overrides, f"output={tmp_path}")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert re.match(rf"error: {SKIPPED_IN_A_ROW} steps in a row are skipped; step \d+: the gradient", line)
    (path,) = tmp_path.glob("*/*/summary.json")
    assert json.loads(path.read_text())["status"] == "failed"
    records = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
    assert [r["train/steps_skipped"] for r in records][-SKIPPED_IN_A_ROW:] == list(range(SKIPPED_IN_A_ROW))


def test_the_newest_value_is_none_and_not_the_one_before() -> None:
    state = SimpleNamespace(last={"step": 1, "test/loss": 3.0, "test/perplexity": 20.0})
    noted = TrainingState.note(state, {"test/loss": 800.0, "test/perplexity": math.inf, "x": math.nan})
    assert noted == {"test/loss": 800.0}
    assert state.last == {"step": 1, "test/loss": 800.0}
