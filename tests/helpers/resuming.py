"""Interrupted and resumed trainings in this process."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import resolved
from safetensors import safe_open

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
    return resolved("tracker=none", f"output={output}", "checkpoint.at_end=true", *overrides)


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
    folder = RunFolder(config)
    (parts,) = folder.checkpoints.glob("step-*")
    tensors: dict[str, torch.Tensor] = {}
    for part in sorted(parts.glob("*.safetensors")):
        with safe_open(part, "pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {"records": records(folder), "summary": timeless(folder.summary()), "tensors": tensors}


def records(folder: RunFolder) -> list[dict[str, float]]:
    return [timeless(json.loads(line)) for line in folder.metrics.read_text().splitlines()]


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
