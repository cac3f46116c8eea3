"""The DDP hook with parameters that are not contiguous, frozen, or not updated after a pass."""

from typing import Any

import pytest
import torch
from odd_parameters import HALF, STEPS, all_cases, strided
from processes import run_in_processes
from torch import nn

import total_error
from trainers.comm.communicator import Communicator
from trainers.hooks.ddp import CompressionState

Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    return run_in_processes(all_cases, 2)


@pytest.mark.parametrize("processes", [1, 2])
def test_gradients_have_the_same_indices_in_any_memory_order(processes: int) -> None:
    for result in run_in_processes(strided, processes):
        assert len(result) == 9
        assert all(result.values()), result


def test_a_frozen_layer_does_not_move_and_keeps_its_residual(found: Found) -> None:
    sent = [HALF * 6, HALF * 1] + [STEPS * 6, STEPS * 1] * 2  # weight and bias of each layer
    for result in found:
        for own in result["frozen"]:
            assert (own["moved"], own["kept"], own["sent"]) == (0.0, True, [sent])


def test_residuals_carry_over_to_the_wrapper_of_a_thawed_layer(found: Found) -> None:
    for result in found:
        for own in result["frozen"]:
            assert own["carried"] == ["1.bias", "1.weight", "2.bias", "2.weight"]
            assert own["begun"] == ["0.bias", "0.weight"]
            assert own["steps"] == [STEPS, 0], "sums of another D begin anew"


def test_a_state_with_parameters_of_another_model_is_refused() -> None:
    def state_of(model: nn.Module) -> CompressionState:
        reducer = total_error.build_reducer(total_error.method("none"), 6, total_error.feedback("none"))
        return CompressionState(reducer, model, communicator=Communicator(1))

    saved = state_of(nn.Sequential(nn.Linear(2, 2))).state_dict()
    with pytest.raises(ValueError, match=r"must have parameters of this model alone, got others$"):
        state_of(nn.Linear(2, 2)).load_state_dict(saved)


def test_no_sync_keeps_a_gradient_that_is_thrown_away_out_of_the_residual(found: Found) -> None:
    for rank, result in enumerate(found):
        (plain, none), (kept_out, nothing), (drifted, said) = result["thrown away"].values()
        assert torch.equal(plain, kept_out) and not torch.equal(plain, drifted)
        assert none == nothing == []
        assert len(said) == 1 - rank, "once, from worker 0"
        assert all("no update of the weights between compressed gradients 2 and 3;" in line for line in said)


def test_compressing_twice_is_refused(found: Found) -> None:
    for result in found:
        assert result["twice"] == (
            "compress needs a DistributedDataParallel model without a communication hook, got one with "
            "compression_hook: a wrapper takes one hook, once"
        )
