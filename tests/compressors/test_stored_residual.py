"""Residuals in CPU memory and in bfloat16: results, rounding, conservation, resuming, refusals."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from methods import reduce_once, segment
from own_script import network
from torch import Tensor, nn

from compressors.api import Reducer
from compressors.build import build_reducer
from compressors.feedback import DecayedFeedback, ErrorFeedback, MomentumCorrection, StoredResidual
from compressors.feedback.momentum_correction import Velocities
from compressors.feedback.stored_residual import rounded
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.hooks.compress import chosen_reducer
from trainers.hooks.ddp import CompressionState

W, D, STEPS = 3, 200, 6
FEEDBACKS: dict[str, Callable[[Reducer], Reducer]] = {
    "ef": ErrorFeedback,
    "low_pass": partial(ErrorFeedback, beta=0.1),
    "decayed": DecayedFeedback,
    "momentum_correction": MomentumCorrection,
}
every_feedback = pytest.mark.parametrize("feedback", FEEDBACKS.values(), ids=FEEDBACKS)


def gradients(step: int, workers: int = W) -> Tensor:
    return torch.randn(workers, D, generator=torch.Generator().manual_seed(step))


def reducer_of(feedback: Callable[[Reducer], Reducer], memory: str | None) -> Reducer:
    plain = build_reducer(TopK(density=0.05), D, feedback)
    return plain if memory is None else StoredResidual(plain, memory=memory)


@every_feedback
def test_cpu_memory_changes_nothing(feedback: Callable[[Reducer], Reducer]) -> None:
    plain, stored = (reducer_of(feedback, memory) for memory in (None, "cpu"))
    states: list[Any] = [None, None]
    for step in range(STEPS):
        one, states[0], _ = reduce_once(plain, gradients(step), states[0], step)
        other, states[1], _ = reduce_once(stored, gradients(step), states[1], step)
        assert torch.equal(one.mean["a"], other.mean["a"])
        assert torch.equal(states[0].residual["a"], states[1].residual["a"])


@every_feedback
def test_a_step_in_bfloat16_is_the_step_of_the_same_residual(feedback: Callable[[Reducer], Reducer]) -> None:
    """Only what is kept is rounded, by at most one step of bfloat16."""
    plain, stored = (reducer_of(feedback, memory) for memory in (None, "bf16"))
    state: Any = None
    for step in range(STEPS):
        before = None if state is None else state._replace(residual={"a": state.residual["a"].float()})
        if before is not None and isinstance(before, Velocities):
            before = before._replace(velocity={"a": before.velocity["a"].clone()})
        expected, after, _ = reduce_once(plain, gradients(step), before, step)
        reduced, state, _ = reduce_once(stored, gradients(step), state, step)
        assert torch.equal(reduced.mean["a"], expected.mean["a"])
        assert reduced.residual["a"] is state.residual["a"]
        kept, exact = state.residual["a"], after.residual["a"]
        assert kept.dtype == torch.bfloat16 and kept.shape == (W, D)
        assert ((kept.float() - exact).abs() <= 2**-7 * exact.abs()).all()
    assert not torch.equal(state.residual["a"], exact.bfloat16()), "not to the nearest"


def test_roundings_are_neighbours_with_the_number_as_their_mean() -> None:
    x = torch.tensor([1 + 2**-9, -1 - 3 * 2**-9, 2**-140, 1.0, 0.0, -0.0]).repeat_interleave(20_000)
    found = rounded(x, 7)
    assert torch.equal(found, rounded(x, 7)) and not torch.equal(found, rounded(x, 8))
    assert torch.equal(found.bfloat16().float(), found)
    for own, number in zip(found.view(6, -1), x.view(6, -1)[:, 0], strict=True):
        low, high = own.double().aminmax()
        assert low <= number <= high and len(own.unique()) <= 2
        error = 5 * (high - low).item() / 2 / 20_000**0.5  # five standard deviations of the mean
        assert abs(own.double().mean().item() - number.item()) <= error
    assert len(found.view(6, -1)[0].unique()) == 2
    assert found.view(6, -1)[4:, 0].signbit().tolist() == [False, True]


def test_numbers_that_are_not_finite_stay_so() -> None:
    patterns = torch.tensor([0x7F800000, 0x7FFFFFFF, 0x7F800001, 0x7FC00000]).repeat(500)
    for sign in (0, -(2**31)):
        x = (patterns + sign).to(torch.int32).view(torch.float32)
        found = rounded(x, 1)
        assert torch.equal(found.isnan(), x.isnan())
        assert torch.equal(found[x.isinf()], x[x.isinf()])


def test_gradients_far_below_a_step_of_bfloat16_are_not_lost() -> None:
    """e = 1 takes in 2^-10 at a time: rounded to the nearest number it would stay 1."""
    stored = StoredResidual(ErrorFeedback(build_reducer(TopK(density=0.001), D)), memory="bf16")
    state = stored.init([segment(torch.ones(1, D))])
    state.residual["a"].fill_(1)
    given = torch.full((1, D), 2.0**-10)
    given[0, 0] = 1e3  # the one entry that is sent
    for step in range(512):
        _, state, _ = reduce_once(stored, given.clone(), state, step)
    assert state.residual["a"][0, 1:].float().mean().item() == pytest.approx(1.5, abs=0.04)


def test_groups_of_segments_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every segment by itself, as in other buckets of DistributedDataParallel."""
    expected = [reduce(state, step) for state in [state_of("bf16")] for step in range(3)]
    monkeypatch.setattr("compressors.feedback.stored_residual.GROUP_BYTES", 1)
    found = [reduce(state, step) for state in [state_of("bf16")] for step in range(3)]
    assert all(map(torch.equal, expected, found))


def state_of(memory: str, feedback: str = "ef") -> CompressionState:
    model = network()
    size = sum(p.numel() for p in model.parameters())
    reducer, _ = chosen_reducer("top_k", {"density": 0.05}, feedback, size, memory)
    return CompressionState(reducer, model, communicator=Communicator(1))


def reduce(state: CompressionState, step: int) -> Tensor:
    """The means of a step."""
    draw = torch.Generator().manual_seed(step)
    given = {name: torch.randn(p.numel(), generator=draw) for name, p in state.parameters.items()}
    state.reduce(given, last=True)
    return torch.cat(list(given.values()))


@pytest.mark.parametrize("feedback", ["ef", "momentum_correction"])
def test_a_training_resumes_bit_for_bit(feedback: str) -> None:
    state, resumed = state_of("bf16", feedback), state_of("bf16", feedback)
    for step in range(3):
        reduce(state, step)
    saved = state.state_dict()
    residuals = [x for name, x in saved.items() if "/state/residual/" in name]
    assert len(residuals) == 12 and {x.dtype for x in residuals} == {torch.bfloat16}
    resumed.load_state_dict(saved)
    for step in range(3, 6):
        assert torch.equal(reduce(state, step), reduce(resumed, step))
    for name, x in state.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], x)


def test_a_state_goes_from_the_device_to_cpu_memory_and_back() -> None:
    """To bfloat16 it does not go: its residuals are others."""
    plain, stored = state_of("device"), state_of("cpu")
    reduce(plain, 0)
    stored.load_state_dict(plain.state_dict())
    assert torch.equal(reduce(plain, 1), reduce(stored, 1))
    plain.load_state_dict(stored.state_dict())
    with pytest.raises(ValueError, match=r"than StoredResidual\(memory='bf16'\) around ErrorFeedback"):
        state_of("bf16").load_state_dict(plain.state_dict())


def test_parameters_in_other_dtypes_keep_theirs() -> None:
    model = nn.ModuleDict({"wide": nn.Linear(9, 9), "narrow": nn.Linear(9, 9).half()})
    reducer, _ = chosen_reducer("top_k", {"density": 0.05}, "ef", 180, "bf16")
    state = CompressionState(reducer, model, communicator=Communicator(1))
    dtypes = {name: x.dtype for name, x in state.state.residual.items()}
    assert dtypes["wide.weight"] == torch.bfloat16 and dtypes["narrow.weight"] == torch.float16
    with pytest.raises(ValueError, match=r"^memory must be 'device' or 'cpu' for parameters without float32"):
        CompressionState(reducer, model["narrow"], communicator=Communicator(1))


@pytest.mark.parametrize(
    ("memory", "feedback", "rule"),
    [
        ("disk", "ef", "'device', 'cpu' or 'bf16', got 'disk'"),
        ("bf16", "ef21", "'device' without error feedback or momentum correction, got 'bf16'"),
        ("cpu", "none", "'device' without error feedback or momentum correction, got 'cpu'"),
    ],
)
def test_a_memory_that_does_not_fit_is_refused(memory: str, feedback: str, rule: str) -> None:
    with pytest.raises(ValueError, match=f"^memory must be {rule}$"):
        chosen_reducer("top_k", {"density": 0.05}, feedback, D, memory)
