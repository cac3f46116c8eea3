"""Metrics that overflow: absent from all files of a run, which are valid JSON."""

import math
from types import SimpleNamespace

from trainers.checkpoint.state import TrainingState


def test_the_newest_value_is_none_and_not_the_one_before() -> None:
    state = SimpleNamespace(last={"step": 1, "test/loss": 3.0, "test/perplexity": 20.0})
    noted = TrainingState.note(state, {"test/loss": 800.0, "test/perplexity": math.inf, "x": math.nan})
    assert noted == {"test/loss": 800.0}
    assert state.last == {"step": 1, "test/loss": 800.0}
