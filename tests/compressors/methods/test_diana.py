"""DIANA: its definition and its default rate."""

import math
from functools import partial

import pytest
import torch
from methods import communicator_for, reduce_once, segment

from compressors.api import Codec, Step, inputs_of
from compressors.build import build_reducer
from compressors.feedback import DIANA
from compressors.natural import Natural
from compressors.qsgd import QSGD
from compressors.random_k import RandomK
from compressors.terngrad import TernGrad

W, D, STEPS = 4, 60, 5
METHODS = {  # with the variance omega of the theory
    "qsgd": (QSGD(levels=2, norm="l2"), min(D / 4, math.sqrt(D) / 2)),
    "natural": (Natural(), 1 / 8),
    "terngrad": (TernGrad(clip=None), (math.sqrt(D) - 1) / 2),
    "random_k": (RandomK(density=0.3, unbiased=True, shared_coordinates=False), D / 18 - 1),
}


def gradients(step: int) -> torch.Tensor:
    return torch.randn(W, D, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("alpha", [0.3, None])
@pytest.mark.parametrize(("method", "omega"), METHODS.values(), ids=METHODS)
def test_it_is_its_definition(method: Codec, omega: float, alpha: float | None) -> None:
    """D = C(g - h); the mean of h + D is applied; h += alpha D, alpha = 1 / (1 + omega) by default."""
    reducer = build_reducer(method, D, partial(DIANA, alpha=alpha))
    rate = 1 / (1 + omega) if alpha is None else alpha
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
