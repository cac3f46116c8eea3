"""DIANA: definition, default rate, unbiasedness, and convergence where the workers' optima differ."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from methods import communicator_for, reduce_once, segment

from compressors.api import Codec, Reducer, Step, inputs_of
from compressors.build import build_reducer
from compressors.feedback import DIANA, no_feedback
from compressors.natural import Natural
from compressors.qsgd import QSGD
from compressors.random_k import RandomK
from compressors.terngrad import TernGrad
from compressors.top_k import TopK

W, D, STEPS = 4, 60, 5
METHODS = {
    "qsgd": QSGD(levels=2, norm="l2"),
    "natural": Natural(),
    "terngrad": TernGrad(clip=None),
    "random_k": RandomK(density=0.3, unbiased=True, shared_coordinates=False),
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def gradients(step: int) -> torch.Tensor:
    return torch.randn(W, D, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("alpha", [0.3, None])
@each_method
def test_it_is_its_definition(method: Codec, alpha: float | None) -> None:
    """D = C(g - h); the mean of h + D is applied; h += alpha D, alpha = 1 / (1 + omega) by default."""
    reducer = build_reducer(method, D, partial(DIANA, alpha=alpha))
    rate = 1 / (1 + method.variance_bound(D, Step(0, 0))) if alpha is None else alpha
    assert 0 < rate <= 1
    h, state = torch.zeros(W, D), None
    for step in range(STEPS):
        difference = gradients(step) - h
        sent = difference.clone()
        for worker, row in enumerate(sent):
            method.encode(row, Step(0, step, segment="a", shapes=((3, 20),), worker=worker))
        sent = difference - sent
        reduced, state, _ = reduce_once(reducer, gradients(step), state, step)
        torch.testing.assert_close(reduced.mean["a"], (h + sent).mean(0), rtol=1e-5, atol=1e-5)
        h = h + rate * sent
        torch.testing.assert_close(state.believed["a"], h, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(state.mean.state["a"], h.mean(0), rtol=1e-5, atol=1e-5)


def test_the_rate_is_that_of_the_theory() -> None:
    """1 / (1 + omega): d / k - 1 for Random-k, 1 / 8 for natural, min(d / s^2, sqrt(d) / s) for QSGD."""
    for method, omega in (
        (METHODS["random_k"], D / 18 - 1),
        (METHODS["natural"], 1 / 8),
        (METHODS["qsgd"], min(D / 4, math.sqrt(D) / 2)),
    ):
        reducer = build_reducer(method, D, DIANA)
        _, state, _ = reduce_once(reducer, gradients(0))
        sent = gradients(0).clone()
        for worker, row in enumerate(sent):
            method.encode(row, Step(0, 0, segment="a", shapes=((3, 20),), worker=worker))
        sent = gradients(0) - sent
        torch.testing.assert_close(state.believed["a"] * (1 + omega), sent, rtol=1e-4, atol=1e-5)


def test_the_rate_follows_a_scheduled_density() -> None:
    """With the rate of a higher density, (1 - alpha)^2 + alpha^2 omega exceeds 1, and shifts grow."""
    schedule = {"kind": "step", "milestones": [1], "factor": 0.1}
    reducer = build_reducer(RandomK(density=0.5, unbiased=True, schedule=schedule), D, DIANA)
    for epoch, k in ((0, 30), (1, 3)):
        segments = [segment(gradients(0))]
        step, communicator = Step(0, 0, epoch=epoch), communicator_for(reducer, W)
        _, state = reducer.reduce(inputs_of(segments), reducer.init(segments), step, communicator)
        shift = state.believed["a"]
        kept = shift != 0
        assert kept.sum().item() == W * k
        torch.testing.assert_close(shift[kept], gradients(0)[kept])  # alpha (d / k) x = x


def descend(reducer: Reducer, steps: int) -> float:
    """Squared distance to the optimum of the mean of |x - a_i|^2 / 2, whose workers' optima a_i differ."""
    optima, x, state = 10 * gradients(7), torch.zeros(D), None
    for step in range(steps):
        reduced, state, _ = reduce_once(reducer, x - optima, state, step)
        x = x - 0.2 * reduced.mean["a"]
    return (x - optima.mean(0)).square().sum().item()


@pytest.mark.parametrize("name", ["qsgd", "random_k"])
def test_it_converges_where_compression_alone_does_not(name: str) -> None:
    """With shifts it converges linearly to the optimum; without, the variance of large gradients remains."""
    with_shifts, without = (
        descend(build_reducer(METHODS[name], D, feedback), 200) for feedback in (DIANA, no_feedback)
    )
    assert with_shifts < 1e-6 < 1e-3 < without


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: build_reducer(TopK(density=0.1), D, DIANA),
            "compressor must be unbiased under feedback=diana",
        ),
        (lambda: build_reducer(TernGrad(), D, DIANA), "compressor must be unbiased .* got 'TernGrad'"),
        (lambda: build_reducer(QSGD(), D, partial(DIANA, alpha=0)), r"DIANA.alpha must be in \(0, 1\]"),
        (lambda: build_reducer(QSGD(), D, partial(DIANA, alpha=1.5)), r"DIANA.alpha must be in \(0, 1\]"),
        (lambda: build_reducer(QSGD(), D, partial(DIANA, alpha=True)), r"DIANA.alpha must be in \(0, 1\]"),
    ],
)
def test_refusals(make: Callable[[], Reducer], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
