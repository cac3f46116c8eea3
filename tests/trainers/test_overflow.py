"""Metrics that overflow: absent from all files of a run, which are valid JSON."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import command
from strict_json import require_json

from trainers.checkpoint.state import TrainingState

SMALL = ["model=lstm", "model.width=8", "model.layers=1", "model.dropout=0", "workers=2", "tracker=none"]
SMALL += ["data=python_docs", "data.evaluation_tokens=200", "data.bptt=8", "trainer.batch_size=2"]
DIVERGING = ["compressor=none", "feedback=none", "optimizer.lr=30000", "optimizer.weight_decay=0"]


def test_the_newest_value_is_none_and_not_the_one_before() -> None:
    state = SimpleNamespace(last={"step": 1, "test/loss": 3.0, "test/perplexity": 20.0})
    noted = TrainingState.note(state, {"test/loss": 800.0, "test/perplexity": math.inf, "x": math.nan})
    assert noted == {"test/loss": 800.0}
    assert state.last == {"step": 1, "test/loss": 800.0}


@pytest.mark.slow
def test_a_perplexity_that_overflows_is_absent(tmp_path: Path) -> None:
    words = [*SMALL, *DIVERGING, "trainer.steps=2", "checkpoint.at_end=true", f"output={tmp_path}"]
    result = command(*words)
    assert result.returncode == 0, result.stderr
    assert "test loss" in result.stdout and "test perplexity" not in result.stdout
    written = [path for path in tmp_path.glob("*/*/**/*.json*") if "wandb" not in path.parts]
    names = {path.name for path in written}
    assert {"metrics.jsonl", "summary.json", "part-0-of-1.json"} <= names
    for path in written:
        require_json(path)
    (summary,) = (json.loads(path.read_text()) for path in written if path.name == "summary.json")
    assert summary["test/loss"] > 709 and not any("perplexity" in name for name in summary)
