"""CLT-k and ScaleCom against their definition: one leader a step, its indices sent once, values averaged."""

import numpy as np
import pytest
import torch
from methods import reduce_once

from compressors.build import build_reducer
from compressors.clt_k import CLTK
from compressors.feedback import ErrorFeedback

D, K, STEPS = 50, 5, 9


@pytest.mark.parametrize("workers", [1, 3, 4])
@pytest.mark.parametrize("beta", [1.0, 0.1])
def test_definition(workers: int, beta: float) -> None:
    """Algorithm 1 of the paper in NumPy, and the bytes of a broadcast and an all-reduce."""
    reducer = build_reducer(CLTK(density=K / D), D, lambda inner: ErrorFeedback(inner, beta=beta))
    memory, state = np.zeros((workers, D), dtype=np.float32), None
    for step in range(STEPS):
        drawn = torch.randn(workers, D, generator=torch.Generator().manual_seed(step))
        p = memory + drawn.numpy()
        leader = step % workers
        where = np.argsort(-np.abs(p[leader]), kind="stable")[:K]
        sent = np.zeros_like(p)
        sent[:, where] = p[:, where]
        memory = (1 - beta) * memory + beta * (p - sent)
        reduced, state, communicator = reduce_once(reducer, drawn, state, step)
        np.testing.assert_allclose(reduced.mean["a"].numpy(), sent.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state.residual["a"].numpy(), memory, rtol=1e-5, atol=1e-6)
        charged = communicator.take_charges()
        assert charged[:, 0].tolist() == [4 * K] * workers  # values of all
        assert charged[:, 1].tolist() == [4 * K * (worker == leader) for worker in range(workers)]
        reached = communicator.take_link_bytes()[:, 1]
        shared = 8 * K * (workers - 1) / workers  # of the all-reduce
        expected = [shared + 4 * K * (worker != leader) for worker in range(workers)]
        assert reached.tolist() == pytest.approx(expected)
