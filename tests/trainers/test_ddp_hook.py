"""The DDP hook in a user's script: several buckets, failures, refusals."""

from functools import partial
from typing import Any

import pytest
import torch
from own_script import (
    STEPS,
    by_hand,
    failing_hook,
    gradient_that_is_not_finite,
    head_never_used,
    head_without_use,
    ragged_without_a_word,
    said_at_the_start,
    sparse_gradient,
    uneven_inputs,
    unused_parameters,
    with_hook,
)
from processes import run_in_processes
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from compressors.accordion import Accordion
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.qsgd import QSGD
from compressors.signsgd import SignSGD
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.hooks.buckets import reduced_parameters
from trainers.hooks.compress import compress
from trainers.hooks.ddp import CompressionState


def test_many_buckets_equal_the_explicit_path() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected, _ = by_hand(2)
    torch.set_num_threads(threads)
    for result in run_in_processes(with_hook, 2):
        assert torch.equal(result["weights"], expected)
        assert result["buckets"] == [0] + [0, 1, 2] * (STEPS - 1), "DDP regroups after the first step"
        assert result["num_buckets"] == 3


def test_a_failure_in_the_hooks_thread_reaches_the_backward_pass() -> None:
    for error in run_in_processes(failing_hook, 2):
        assert error == """AttributeError("'NoneType' object has no attribute 'kinds'")"""


@pytest.mark.parametrize("scaler", [None, torch.amp.GradScaler("cpu", enabled=False)])
def test_a_gradient_that_is_not_finite_ends_the_backward_pass_on_all_workers(
    scaler: torch.amp.GradScaler | None,
) -> None:
    (one, first), (other, second) = run_in_processes(gradient_that_is_not_finite, 2, scaler)
    assert one == other == "FloatingPointError('a gradient is not finite in step 1')"
    assert torch.equal(first, second) and first.isfinite().all()


def test_parameters_without_a_gradient_are_found_beside_the_compression() -> None:
    """DDP then sends a map of used parameters, from another thread than the hook's messages."""
    first, second = run_in_processes(unused_parameters, 2)
    assert torch.equal(first, second) and first.isfinite().all()


@pytest.mark.parametrize(("keeps_zeros", "views"), [(False, True), (True, False)])
def test_a_parameter_that_no_worker_uses_in_a_step_gets_what_was_sent(keeps_zeros: bool, views: bool) -> None:
    """DDP does not touch its gradient."""
    for given, found in run_in_processes(head_without_use, 2, keeps_zeros, views):
        torch.testing.assert_close(given, found)


def test_a_parameter_never_used_has_no_gradient() -> None:
    assert all(run_in_processes(head_never_used, 2))


def test_processes_may_have_different_numbers_of_batches() -> None:
    (plain, _), (first, second) = (run_in_processes(uneven_inputs, 2, flag) for flag in (False, True))
    assert torch.equal(plain, first) and torch.equal(first, second)


def test_a_model_without_its_wrapper_is_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match="needs a DistributedDataParallel model, got Linear: wrap it first"):
        compress(nn.Linear(2, 2), "top_k", density=0.1)
    sharded: Any = object.__new__(FullyShardedDataParallel)
    with pytest.raises(ValueError, match=r"got FullyShardedDataParallel: compress_fsdp is for fully_shard$"):
        compress(sharded, "top_k", density=0.1)
    compiled: Any = torch.compile(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"got OptimizedModule: wrap it first$"):
        compress(compiled, "top_k", density=0.1)
    compiled._orig_mod = object.__new__(DistributedDataParallel)
    with pytest.raises(ValueError, match=r"got OptimizedModule: compress it before torch\.compile$"):
        compress(compiled, "top_k", density=0.1)


def test_a_wrapper_that_may_leave_out_the_last_bucket_is_refused() -> None:
    wrapper = object.__new__(DistributedDataParallel)
    vars(wrapper).update(_comm_hooks=[], skip_all_reduce_unused_params=True)
    with pytest.raises(ValueError, match="model without skip_all_reduce_unused_params: a step ends with the"):
        compress(wrapper, "top_k", density=0.1)


def test_what_differs_between_processes_or_is_momentum_is_said_in_a_line() -> None:
    for rank, (seeds, momentum) in enumerate(run_in_processes(said_at_the_start, 2)):
        assert seeds.startswith("compression needs the same method, settings, seed and parameters in all")
        assert seeds.endswith(f"), seed {rank}")
        assert [line for line in momentum if "momentum" in line] == [
            "total_error: MomentumCorrection has the momentum 0.9 itself: the optimizer must be SGD with "
            "momentum 0"
        ][rank:]


def test_sparse_gradients_are_refused_in_a_line() -> None:
    for said in run_in_processes(sparse_gradient, 2):
        assert said.splitlines()[0] == "gradients must be dense, got a sparse one of weight: use sparse=False"


def test_a_method_that_does_not_say_that_it_is_ragged_is_refused_in_a_line() -> None:
    """Each process has one worker, so none sees that another one has sent fewer entries."""
    for said in run_in_processes(ragged_without_a_word, 2):
        assert said.splitlines()[0] == (
            "Sparse.values must have the same length on all workers: its Field has no elements_per_entry, or "
            "NotSaidRagged must declare Traits(ragged=True)"
        )


def test_a_method_that_does_not_suit_its_feedback_is_refused() -> None:
    for method in (QSGD(), SignSGD()):
        reducer = build_reducer(method, 6, ErrorFeedback)
        with pytest.raises(ValueError, match=r"^feedback must be none.*, got '?ErrorFeedback"):
            CompressionState(reducer, nn.Linear(2, 2), communicator=Communicator(1))


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
    state.learning_rate = [0.5]
    with pytest.raises(ValueError, match=r"^CompressionState\.learning_rate must be a number, got \[0\.5\]"):
        state.reduce(gradients, last=True)
    state.learning_rate = 0.5
    state.reduce(gradients, last=True)
    assert state.state.residual["weight"].tolist() == [[0.0, 0.0, 0.5, 0.5]]  # of p = 0.5 g


def test_a_tied_parameter_is_ignored_if_all_its_names_are() -> None:
    """As DDP does, which goes through the parameters of each module."""
    model = nn.ModuleDict({"e": nn.Embedding(3, 2), "o": nn.Linear(2, 3, bias=False)})
    model["o"].weight = model["e"].weight
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    for ignored, reduced in ([], ["e.weight"]), (["e.weight"], ["o.weight"]), (["e.weight", "o.weight"], []):
        ignore(model, ignored)
        assert list(reduced_parameters(model)) == reduced
