"""A method whose state a checkpoint could not contain is refused, and one whose state changes its form."""

from pathlib import Path
from typing import Any

import pytest
import torch
from configs import resolved
from methods import FEEDBACKS, segment

from compressors.api import Shared
from compressors.build import build_reducer
from compressors.top_k import TopK
from trainers.checkpoint.form import first_form, require_form
from trainers.config.errors import ConfigError
from trainers.run.session import run

D, W = 20, 3
RUN = ("tracker=none", "model=mlp", "data=digits", "compressor=top_k", "workers=3", "trainer.steps=4")
ROWS = r"every tensor in the state of Stateful in ErrorFeedback must have a row for each local worker, "


class Stateful(TopK):
    """A method with the state {"x": ``first``}."""

    first: Any = torch.zeros(W, 2)

    def init(self, segments: Any) -> Any:
        return {"x": self.first}


@pytest.fixture(autouse=True)
def _first_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stateful, "first", Stateful.first)


def form(first: Any, feedback: str = "gradient") -> dict[str, str]:
    Stateful.first = first
    reducer = build_reducer(Stateful(density=0.5), D, FEEDBACKS[feedback])
    return first_form(reducer, reducer.init([segment(torch.zeros(W, D))]), W)


def test_rows_of_workers_and_shared_tensors_are_accepted() -> None:
    found = form((torch.zeros(W), {"y": Shared(torch.zeros(7, dtype=torch.int64))}))
    own = {"state/inner/x/0": "float32 [3]", "state/inner/x/1/y": "Shared int64 [7]"}
    assert found == {"state/residual/a": "float32 [3, 20]"} | own
    assert form((), "none") == {}


NOT_SAVED = "the state of Stateful cannot be saved: state/x must be tensors in dicts and tuples, got"


@pytest.mark.parametrize(
    ("first", "feedback", "said"),
    [
        *(
            (
                torch.zeros(shape),
                "gradient",
                rf"{ROWS}.* in Shared: state/inner/x is float32 .* for 3 workers",
            )
            for shape in ((), (7,), (1, W))
        ),
        *((first, "none", NOT_SAVED) for first in (0.1, [0.1, 0.2], None)),
    ],
)
def test_a_state_that_is_no_rows_of_tensors(first: Any, feedback: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        form(first, feedback)


def test_a_run_ends_before_its_first_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(TopK, "init", lambda self, segments: {"x": torch.zeros(7)})
    config = resolved(*RUN, f"output={tmp_path}")
    with pytest.raises(ConfigError, match=r"state of TopK in ErrorFeedback must .* is float32 \[7\]"):
        run(config)
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("later", "change"),
    [
        ({}, r"state/x was float32 \[3, 2\], is absent"),
        ({"x": torch.zeros(W, 2), "y": torch.zeros(W)}, r"state/y was absent, is float32 \[3\]"),
        ({"x": torch.zeros(W, 3)}, r"state/x was float32 \[3, 2\], is float32 \[3, 3\]"),
        ({"x": torch.zeros(W, 2).double()}, r"state/x was float32 \[3, 2\], is float64 \[3, 2\]"),
        ({"x": Shared(torch.zeros(W, 2))}, r"state/x was float32 \[3, 2\], is Shared float32 \[3, 2\]"),
    ],
    ids=["name lost", "new name", "shape", "dtype", "shared"],
)
def test_a_form_that_changes(later: Any, change: str) -> None:
    reducer = build_reducer(Stateful(density=0.5), D)
    first = form(torch.zeros(W, 2), "none")
    require_form(reducer, {"x": torch.ones(W, 2)}, first)
    rule = "the state of Stateful must keep the names, shapes and dtypes of init"
    with pytest.raises(ValueError, match=f"{rule}: {change}"):
        require_form(reducer, later, first)


def added(self: Any, inputs: Any, state: Any, step: Any, communicator: Any) -> Any:
    """A ``choose`` that adds names to the state in the first step, in the dict that ``init`` returned."""
    for given in inputs:
        state.setdefault(given.name, torch.zeros(len(given.rows))).add_(1)
    return [self] * len(inputs), state


def test_a_run_ends_at_its_first_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(TopK, "init", lambda self, segments: {})
    monkeypatch.setattr(TopK, "choose", added)
    message = r"the state of TopK in ErrorFeedback must keep .* was absent, is float32 \[3\]"
    with pytest.raises(ConfigError, match=message):
        run(resolved(*RUN, f"output={tmp_path}", "checkpoint.every_steps=2"))
