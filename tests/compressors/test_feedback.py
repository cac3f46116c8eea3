"""Feedback: each kind against its definition, and properties that hold for all kinds."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from methods import communicator_for, plan, reduce_once, segment
from processes import run_in_processes
from shifting import results
from torch import Tensor

from compressors.api import Codec, Reducer, Segment, Step, Wrapper, inputs_of
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.chunk_top_k import ChunkTopK
from compressors.demo import DeMo
from compressors.feedback import EF21, EF21SGDM, ErrorFeedback, MomentumCorrection
from compressors.hard_threshold import HardThreshold
from compressors.none import NoCompression
from compressors.qsgd import QSGD
from compressors.random_k import RandomK
from compressors.terngrad import TernGrad
from compressors.top_k import TopK
from compressors.two_way import TwoWay
from compressors.visible import Visible
from trainers.checkpoint.tree import walk
from trainers.comm.communicator import Communicator

W, D, STEPS = 3, 60, 6
FEEDBACKS: dict[str, Callable[[Reducer], Reducer]] = {
    "ef": ErrorFeedback,
    "ef21": EF21,
    "ef21_sgdm": EF21SGDM,
    "momentum_correction": MomentumCorrection,
    "momentum_correction by step": partial(MomentumCorrection, scale="step"),
    "without masking": partial(MomentumCorrection, masking=False),
}
every_feedback = pytest.mark.parametrize("feedback", FEEDBACKS.values(), ids=FEEDBACKS)


def gradients(step: int, workers: int = W) -> Tensor:
    return torch.randn(workers, D, generator=torch.Generator().manual_seed(step))


def means(reducer: Reducer) -> list[np.ndarray]:
    """The mean of each step."""
    state, found = None, []
    for step in range(STEPS):
        reduced, state, _ = reduce_once(reducer, gradients(step), state, step)
        found.append(reduced.mean["a"].numpy().copy())
    return found


def top(x: np.ndarray, k: int) -> np.ndarray:
    """A mask of the k largest magnitudes of each row."""
    return np.abs(x) >= np.sort(np.abs(x), 1)[:, -k][:, None]


@pytest.mark.parametrize(("feedback", "momentum"), [(EF21, 0.0), (partial(EF21SGDM, momentum=0.8), 0.8)])
def test_ef21_is_its_definition(feedback: Callable[[Reducer], Reducer], momentum: float) -> None:
    """v = m v + (1 - m) g, which begins with g; h += C(v - h) on every worker; the mean of h is applied."""
    v, h = gradients(0).numpy(), np.zeros((W, D))
    for step, mean in enumerate(means(build_reducer(TopK(density=0.1), D, feedback))):
        v = momentum * v + (1 - momentum) * gradients(step).numpy()
        h += np.where(top(v - h, 6), v - h, 0)
        np.testing.assert_allclose(mean, h.mean(0), rtol=1e-5, atol=1e-6)


def test_ef21_sgdm_begins_with_the_first_gradient_after_skipped_steps() -> None:
    """Under trainer.nonfinite=skip the first reduced step may have any number."""
    reducer = build_reducer(NoCompression(), D, EF21SGDM)
    reduced, state, _ = reduce_once(reducer, gradients(0), None, 3)
    torch.testing.assert_close(reduced.mean["a"], gradients(0).mean(0))
    reduced, _, _ = reduce_once(reducer, gradients(1), state, 4)
    torch.testing.assert_close(reduced.mean["a"], gradients(0).lerp(gradients(1), 0.1).mean(0))


def test_residuals_of_dense_training_share_no_memory() -> None:
    """A wrapper adds to the residual in place, also to that of a layer of one element of one worker."""
    reducer = build_reducer(NoCompression(), 2, MomentumCorrection)
    communicator = Communicator(1)
    layers = [Segment(name, torch.zeros(1, 1), ((1,),)) for name in ("a", "b")]
    state = reducer.init(layers)
    for step, expected in enumerate(((1.0, 10.0), (1.9, 19.0), (2.71, 27.1))):
        given = [
            layer._replace(rows=torch.tensor([[own]])) for layer, own in zip(layers, (1.0, 10.0), strict=True)
        ]
        reduced, state = reducer.reduce(inputs_of(given), state, Step(0, step), communicator)
        assert [reduced.mean[name].item() for name in ("a", "b")] == pytest.approx(expected)


@pytest.mark.parametrize("scale", ["gradient", "step"])
@pytest.mark.parametrize("beta", [1.0, 0.25])
def test_error_feedback_is_its_definition(scale: str, beta: float) -> None:
    """e' = (1 - beta) e + beta (p - C(p)): a part of what was sent stays (Chen et al., algorithm 1)."""
    state = None
    reducer = build_reducer(TopK(density=0.1), D, partial(ErrorFeedback, beta=beta, scale=scale))
    residual = np.zeros((W, D))
    for step in range(STEPS):
        rate = 0.5 / (1 + step)
        reduced, state, _ = reduce_once(reducer, gradients(step), state, step, learning_rate=rate)
        p = residual + gradients(step).numpy() * (rate if scale == "step" else 1)
        sent = np.where(top(p, 6), p, 0)
        residual = (1 - beta) * residual + beta * (p - sent)
        np.testing.assert_allclose(state.residual["a"].numpy(), residual, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(reduced.residual["a"].numpy(), p - sent, rtol=1e-5, atol=1e-6)
        applied = reduced.mean["a"].numpy() * (rate if scale == "step" else 1)
        np.testing.assert_allclose(applied, sent.mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("masking", [True, False])
def test_momentum_correction_is_its_definition(masking: bool) -> None:
    """u = m u + g, v += u; entries of v that are sent become 0 in v, with masking also in u (Lin et al.)."""
    feedback = partial(MomentumCorrection, momentum=0.8, masking=masking)
    velocity, total = np.zeros((W, D)), np.zeros((W, D))
    for step, mean in enumerate(means(build_reducer(TopK(density=0.1), D, feedback))):
        velocity = 0.8 * velocity + gradients(step).numpy()
        total += velocity
        kept = top(total, 6)
        np.testing.assert_allclose(mean, np.where(kept, total, 0).mean(0), rtol=1e-5, atol=1e-6)
        total[kept] = 0
        if masking:
            velocity[kept] = 0


def test_momentum_correction_by_the_step_rescales_what_waits() -> None:
    """v += lr u, and the mean is divided by lr: if the rate halves, entries of the residual count twice."""
    reducer = build_reducer(TopK(density=1 / D), D, partial(MomentumCorrection, momentum=0.0, scale="step"))
    g = torch.arange(1.0, D + 1).expand(W, D)
    first, state, _ = reduce_once(reducer, g, None, 0, learning_rate=0.5)
    assert first.mean["a"].nonzero().flatten().tolist() == [D - 1]
    assert first.mean["a"][D - 1] == D
    second, _, _ = reduce_once(reducer, g, state, 1, learning_rate=0.25)
    assert second.mean["a"].nonzero().flatten().tolist() == [D - 2]
    assert second.mean["a"][D - 2] == 3 * (D - 1)  # (0.5 + 0.25) g / 0.25
    with pytest.raises(
        ValueError, match=r"the schedule must be positive in every step under feedback\.scale"
    ):
        reducer.check(plan(rates=(1.0, 0.0)))


@every_feedback
def test_some_segments_now_and_some_later(feedback: Callable[[Reducer], Reducer]) -> None:
    reducer = build_reducer(TopK(density=0.1), D, feedback)
    states = []
    for buckets in (["abc"], ["c", "ab"]):
        state = reducer.init([segment(gradients(0), name) for name in "abc"])
        communicator = communicator_for(reducer, W)
        for step in range(2):
            for bucket in buckets:
                own = [segment(gradients(ord(name) + step), name) for name in bucket]
                _, state = reducer.reduce(inputs_of(own), state, Step(0, step), communicator)
        states.append(state)
    for shared in (False, True):
        one, other = (dict(walk(state, "", shared=shared)) for state in states)
        assert one.keys() == other.keys()
        for name in one:
            assert torch.equal(one[name], other[name]), name


@every_feedback
def test_what_is_about_to_be_compressed_can_be_seen(feedback: Callable[[Reducer], Reducer]) -> None:
    """``carried`` returns the p that ``reduce`` then compresses."""
    reducer = build_reducer(TopK(density=0.1), D, feedback)
    state, communicator = reducer.init([segment(gradients(0))]), communicator_for(reducer, W)
    for step in range(3):
        own = inputs_of([segment(gradients(step))])
        (seen,) = reducer.carried(own, state, Step(0, step))
        p = seen.seen().rows.clone()
        reduced, state = reducer.reduce(own, state, Step(0, step), communicator)
        norms = reduced.compressed["a"].input_norm.squeeze(1)
        torch.testing.assert_close(p.double().square().sum(1), norms)


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_change_nothing(processes: int) -> None:
    """Means, bytes and states of 4 workers are bit-identical in 1, 2 and 4 processes."""
    expected, found = results(0, 1), run_in_processes(results, processes)
    for name, own in expected.items():
        for key, tensor in own["alike"].items():
            assert all(torch.equal(each[name]["alike"][key], tensor) for each in found), f"{name}: {key}"
        for key, tensor in own["rows"].items():
            assert torch.equal(torch.cat([each[name]["rows"][key] for each in found]), tensor), (
                f"{name}: {key}"
            )


@pytest.mark.parametrize(
    ("kind", "name"), [(MomentumCorrection, "momentum_correction"), (EF21SGDM, "ef21_sgdm")]
)
def test_another_momentum_or_optimizer_is_refused(kind: type, name: str) -> None:
    reducer: Reducer = kind(build_reducer(TopK(density=0.1), D))
    reducer.check(plan())
    with pytest.raises(ValueError, match=rf"optimizer\.momentum must be 0 under feedback={name}"):
        reducer.check(plan(momentum=0.9))
    with pytest.raises(ValueError, match=rf"optimizer must be SGD under feedback={name}"):
        reducer.check(plan(optimizer="Adam"))


@pytest.mark.parametrize("feedback", [EF21, EF21SGDM])
@pytest.mark.parametrize("method", [ChunkTopK(), DeMo()])
def test_shifts_need_a_mean_over_all_workers(feedback: type[Wrapper], method: Codec | Reducer) -> None:
    """With equal gradients in each step the direction would end up to W times too long."""
    with pytest.raises(ValueError, match="aggregation must be mean under feedback by shifts, such as ef21"):
        build_reducer(method, D, feedback)
    build_reducer(replace(method, aggregation="mean"), D, feedback)


@pytest.mark.parametrize(
    ("method", "error"),
    [
        (TernGrad(clip=None), "TernGrad has an error of 2.32"),
        (TernGrad(clip=2.0), None),
        (TwoWay(up=QSGD(bits=2), down=QSGD()), "TwoWay.up, QSGD, has an error of 1.68"),
        (Chain(first=TopK(density=0.5), second=QSGD(bits=2)), "TopK and QSGD has an error of 1.46"),
        (Chain(first=TopK(density=0.01), second=QSGD(bits=2)), None),
        (Chain(first=Visible(), second=QSGD(bits=8)), None),  # among weights of the entries' order
    ],
)
def test_an_error_above_the_norm_of_a_gaussian_vector_is_refused(
    method: Codec | Reducer, error: str | None
) -> None:
    """Where ||x - C(x)|| > ||x||, the residual exceeds p = g + e, and grows from step to step."""
    method.check(plan(feedback="", needs_contraction=False))
    if error is None:
        method.check(plan())
        return
    with pytest.raises(
        ValueError, match=rf"^feedback must be none, got ErrorFeedback: {error} \|\|x\|\|\^2 on"
    ):
        method.check(plan())


@pytest.mark.parametrize(("density", "variance"), [(0.9, 1), (0.6, 2), (0.1, 18)])
def test_an_unbiased_random_k_is_judged_by_its_smallest_layers(density: float, variance: int) -> None:
    """A layer of d entries sends one as long as d < 2 / density, with a variance of (d - 1) ||x||^2."""
    with pytest.raises(ValueError, match=rf"RandomK's variance of up to {variance} \|\|x\|\|\^2"):
        RandomK(density=density, unbiased=True).check(plan())
    RandomK(density=1.0, unbiased=True).check(plan())
    RandomK(density=density).check(plan())


def test_a_chain_uses_the_learning_rate_if_a_part_of_it_does() -> None:
    following = HardThreshold(threshold=0.1, follows="rate")
    assert Chain(first=following, second=TopK(density=0.5)).uses_learning_rate
    assert not Chain(first=TopK(density=0.5), second=QSGD(bits=4)).uses_learning_rate


def test_a_threshold_that_follows_the_rate_needs_one_above_0() -> None:
    """At a rate of 0 it would send everything, and the optimizer would multiply that by 0."""
    following = HardThreshold(threshold=0.1, follows="rate")
    with pytest.raises(
        ValueError, match=r"^the schedule must be positive .* under compressor.follows=rate, "
    ):
        following.check(plan(lowest_rate=0.0))
    following.check(plan(lowest_rate=0.1))
    with pytest.raises(ValueError, match=r"^the learning rate must be > 0 under follows=rate, got 0"):
        following.encode(torch.ones(2), Step(0, 0, 0.0))
