"""The hook in somebody's own script: many buckets, regrouped after the first step."""

import pytest
import torch
from own_script import STEPS, by_hand, failing_hook, with_hook
from processes import run_in_processes
from torch import nn

from compressors.top_k import TopK
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
