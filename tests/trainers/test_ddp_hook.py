"""The DDP hook in a user's script: several buckets, failures, refusals."""

from functools import partial

import pytest
import torch
from own_script import STEPS, by_hand, failing_hook, with_hook
from processes import run_in_processes
from torch import nn

from compressors.accordion import Accordion
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.comm.ddp_hook import CompressionState


def test_many_buckets_equal_the_explicit_path() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = by_hand(2)
    torch.set_num_threads(threads)
    for result in run_in_processes(with_hook, 2):
        assert torch.equal(result["weights"], expected)
        assert result["buckets"] == [0] + [0, 1, 2] * (STEPS - 1), "DDP regroups after the first step"


def test_a_failure_in_the_hooks_thread_reaches_the_backward_pass() -> None:
    for message in run_in_processes(failing_hook, 2):
        assert "'NoneType' object has no attribute 'reduce'" in message


def test_a_bare_method_is_answered_with_how_to_wrap_it() -> None:
    with pytest.raises(
        ValueError, match=r"reducer, got the method TopK: wrap it by compressors\.build\.build"
    ):
        CompressionState(TopK(density=0.1), nn.Linear(2, 2))


def test_feedback_in_units_of_the_step_needs_a_learning_rate() -> None:
    model = nn.Linear(2, 2)
    reducer = build_reducer(TopK(density=0.5), 6, partial(ErrorFeedback, scale="step"))
    with pytest.raises(ValueError, match=r"^CompressionState\.learning_rate must be given .*scale='step'"):
        CompressionState(reducer, model, communicator=Communicator(1))
    accordion = build_reducer(Accordion(k_low=0.1, k_high=0.5), 6, ErrorFeedback)  # compares learning rates
    with pytest.raises(ValueError, match=r"^CompressionState\.learning_rate must be given with ACCORDION"):
        CompressionState(accordion, model, communicator=Communicator(1))
    state = CompressionState(reducer, model, communicator=Communicator(1), learning_rate=0.5)
    gradients = {name: torch.ones(p.numel()) for name, p in model.named_parameters()}
    gradients["weight"][0] = 3.0
    state.reduce(gradients, last=True)
    assert state.state.residual["weight"].tolist() == [[0.0, 0.0, 0.5, 0.5]]  # of p = 0.5 g
