"""Interrupted and resumed trainings in this process."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import resolved

from trainers.checkpoint.files import read_checkpoint, step_folders
from trainers.checkpoint.saving import Checkpoints
from trainers.network_model.break_even import NAME as BREAK_EVEN
from trainers.network_model.break_even import ROUNDS
from trainers.run import training
from trainers.run.folder import RunFolder

CLOCKED = ("wall_seconds", BREAK_EVEN, ROUNDS, "checksums")  # of the last session alone


class Crash(Exception):
    """Ends a training without saving anything."""


def config_of(output: Path, *overrides: str) -> dict[str, Any]:
    """A config that keeps a checkpoint at its end."""
    return resolved("tracker=none", "checkpoint.at_end=true", *overrides) | {"output": str(output)}


@contextmanager
def crash_after(step: int) -> Iterator[None]:
    """Context manager that interrupts the training after ``step``, when pending writes are complete."""
    after_step = Checkpoints.after_step

    def crashing(self: Checkpoints, state: Any, snapshot: Any = None) -> None:
        after_step(self, state, snapshot)
        if state.step == step:
            self.wait()
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "after_step", crashing)
        with pytest.raises(Crash):
            yield


def outcome(config: dict[str, Any]) -> dict[str, Any]:
    """The results of a finished run, without times."""
    return outcome_in(RunFolder(config).path)


def outcome_in(folder: Path) -> dict[str, Any]:
    """The results of the finished run in a folder, without times."""
    (end,) = step_folders(folder / "checkpoint")
    checkpoint = read_checkpoint(end)
    snapshot = checkpoint.load(range(checkpoint.num_workers))
    tensors = {f"shared/{name}": tensor for name, tensor in snapshot.shared.items()}
    for worker, state in snapshot.workers.items():
        tensors |= {f"worker/{worker}/{name}": tensor for name, tensor in state.tensors.items()}
    summary = json.loads((folder / "summary.json").read_text())
    return {"records": records_in(folder), "summary": timeless(summary), "tensors": tensors}


def records(folder: RunFolder) -> list[dict[str, float]]:
    return records_in(folder.path)


def records_in(folder: Path) -> list[dict[str, float]]:
    """The records of metrics.jsonl without times."""
    return [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record.items() if not k.startswith("time/") and k not in CLOCKED}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Assert that two outcomes are equal bit for bit."""
    assert one["records"] == other["records"]
    assert one["summary"] == other["summary"]
    assert one["tensors"].keys() == other["tensors"].keys()
    for name, tensor in one["tensors"].items():
        assert torch.equal(tensor, other["tensors"][name]), name


def train(config: dict[str, Any]) -> dict[str, Any]:
    """``outcome`` of the run, new or resumed, in one process and thread."""
    training.train(config)
    return outcome(config)
