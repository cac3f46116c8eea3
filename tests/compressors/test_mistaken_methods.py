"""Mistakes in a new method end in one line that names the method's class and the rule."""

from typing import Any

import pytest
import torch
from methods import Case, reduce_once
from smuggling import Smuggler
from torch.multiprocessing import ProcessRaisedException

from compressors.build import build_reducer
from compressors.top_k import TopK
from contract.cases import cases_of
from contract.processes import compare_layouts

D, W = 20, 3


def test_a_class_that_is_neither_codec_nor_reducer() -> None:
    class Neither:
        def encode(self) -> None: ...

    method: Any = Neither()
    message = "a compressor must extend Codec or Reducer, got Neither"
    with pytest.raises(ValueError, match=message):
        build_reducer(method, D)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(lambda own, state: [own], id="no state"),
        pytest.param(lambda own, state: (own, state), id="one codec"),
        pytest.param(lambda own, state: ([], state), id="too few"),
    ],
)
def test_wrong_results_of_choose(chosen: Any) -> None:
    class Mistaken(TopK):
        def choose(self, inputs: Any, state: Any, step: Any, communicator: Any) -> Any:
            return chosen(self, state)

    rule = "return a list of 1 codecs, one for each segment, and the state"
    with pytest.raises(ValueError, match=rf"Mistaken\.choose must {rule}"):
        reduce_once(build_reducer(Mistaken(density=0.5), D), torch.ones(W, D))


def test_an_example_with_a_misspelt_setting() -> None:
    class Misspelt(TopK):
        examples = ({"densty": 0.5},)

    with pytest.raises(ValueError, match=r"^examples: Misspelt has no setting densty$"):
        cases_of(Misspelt)


def test_values_that_are_not_sent_are_missing_in_another_process() -> None:
    """The comparison must not run all workers in a process before it runs that process's own."""
    with pytest.raises(ProcessRaisedException, match="KeyError"):
        compare_layouts([Case(Smuggler, {})], 2)
