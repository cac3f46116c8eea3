"""EF21-SGDM against its definition and against torch's SGD with momentum."""

from functools import partial

import numpy as np
import torch
from methods import reduce_once

from compressors.build import build_reducer
from compressors.feedback import EF21SGDM
from compressors.none import NoCompression
from compressors.top_k import TopK

W, D, STEPS = 3, 60, 6


def gradients(step: int) -> torch.Tensor:
    return torch.randn(W, D, generator=torch.Generator().manual_seed(step))


def test_it_is_its_definition() -> None:
    """v = m v + (1 - m) g, h += C(v - h); the mean of h is applied. v begins with the first gradient."""
    reducer = build_reducer(TopK(density=0.1), D, partial(EF21SGDM, momentum=0.8))
    v, h, state = gradients(0).double().numpy(), np.zeros((W, D)), None
    for step in range(STEPS):
        g = gradients(step).double().numpy()
        v = 0.8 * v + 0.2 * g
        difference = v - h
        kept = np.abs(difference) >= np.sort(np.abs(difference), 1)[:, -6][:, None]
        h += np.where(kept, difference, 0)
        reduced, state, communicator = reduce_once(reducer, gradients(step), state, step)
        np.testing.assert_allclose(reduced.mean["a"].numpy(), h.mean(0), atol=1e-6)
        left = np.where(kept, 0, difference)
        np.testing.assert_allclose(reduced.compressed["a"].error[:, 0], (left**2).sum(1), rtol=1e-5)
        assert communicator.take_charges().sum(1).tolist() == [8 * 6] * W


def test_without_compression_it_is_sgd_with_dampened_momentum() -> None:
    """torch.optim.SGD(momentum=m, dampening=1 - (1 - m)), whose first step takes the gradient as it is."""
    reducer = build_reducer(NoCompression(), D, EF21SGDM)
    ours, torchs = (torch.zeros(D, requires_grad=True) for _ in range(2))
    plain = torch.optim.SGD([ours], lr=0.1)
    momentum = torch.optim.SGD([torchs], lr=0.1, momentum=0.9, dampening=0.9)
    state = None
    for step in range(STEPS):
        reduced, state, _ = reduce_once(reducer, gradients(step), state, step)
        ours.grad, torchs.grad = reduced.mean["a"], gradients(step).mean(0)
        plain.step()
        momentum.step()
    torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-6)


def test_it_begins_with_the_first_gradient_after_skipped_steps() -> None:
    """Under trainer.nonfinite=skip the first reduced step may have any number."""
    reducer = build_reducer(NoCompression(), D, EF21SGDM)
    reduced, state, _ = reduce_once(reducer, gradients(0), None, 3)
    torch.testing.assert_close(reduced.mean["a"], gradients(0).mean(0))
    reduced, _, _ = reduce_once(reducer, gradients(1), state, 4)
    averaged = gradients(0).lerp(gradients(1), 0.1)
    torch.testing.assert_close(reduced.mean["a"], averaged.mean(0))
