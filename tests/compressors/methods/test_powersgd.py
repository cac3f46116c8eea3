"""PowerSGD against its definition in NumPy and against torch's hook."""

import numpy as np
import pytest
import torch
from methods import communicator_for
from processes import run_in_processes
from torchs_powersgd import NUM_ELEMENTS, means_of_both

from compressors.api import Segment, Step, inputs_of
from compressors.feedback import ErrorFeedback
from compressors.powersgd import PowerSGD
from trainers.comm.communicator import Communicator

W, SHAPE, BIAS = 3, (12, 5, 2), (7,)
D = 12 * 10 + 7


def gradients(step: int) -> torch.Tensor:
    """[W, D] float64: a constant part plus noise."""
    steady = torch.randn(D, generator=torch.Generator().manual_seed(100))
    return (steady + torch.randn(W, D, generator=torch.Generator().manual_seed(step))).double()


def segments(rows: torch.Tensor, scope: str = "global") -> list[Segment]:
    if scope == "global":
        return [Segment("model", rows, (SHAPE, BIAS))]
    return [Segment("weight", rows[:, :120], (SHAPE,)), Segment("bias", rows[:, 120:], (BIAS,))]


@pytest.mark.parametrize("residual", ["local", "mean"])
@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize(("rank", "warm_start"), [(1, True), (3, True), (3, False)])
def test_it_is_its_definition(rank: int, warm_start: bool, scope: str, residual: str) -> None:
    """P' = orth(M Q), C(M_i) = P' P'^T M_i or P' P'^T M, then Q = M^T P'; vectors and means are exact."""
    reducer = ErrorFeedback(PowerSGD(rank=rank, warm_start=warm_start, residual=residual))
    own = segments(torch.zeros(W, D).double(), scope)
    state, left = reducer.init(own), np.zeros((W, 12, 10))
    communicator = Communicator(W)
    if warm_start:
        (q,) = (factor.T.numpy().copy() for factor in state.inner.state.values())
    for step in range(5):
        g = gradients(step)
        if not warm_start:
            (q,) = (factor.T.numpy() for factor in reducer.inner._drawn(own, 4, step).values())
        p = left + g[:, :120].numpy().reshape(W, 12, 10)
        basis = np.linalg.qr(p.mean(0) @ q)[0]
        mean = basis @ basis.T @ p.mean(0)
        sent = basis @ basis.T @ p if residual == "local" else mean
        left, q = p - sent, p.mean(0).T @ basis
        inputs = inputs_of(segments(g.clone(), scope))
        reduced, state = reducer.reduce(inputs, state, Step(4, step), communicator)
        found = torch.cat(list(reduced.mean.values())).numpy()
        np.testing.assert_allclose(found[:120], mean.ravel(), atol=1e-11)
        np.testing.assert_allclose(found[120:], g[:, 120:].numpy().mean(0), atol=1e-14)
        kept = torch.cat(list(state.residual.values()), 1).numpy()
        np.testing.assert_allclose(kept[:, :120], left.reshape(W, 120), atol=1e-11)
        assert not kept[:, 120:].any()
        errors = [own.error.sum(1).numpy() for own in reduced.compressed.values()]
        np.testing.assert_allclose(sum(errors), (kept**2).sum(1), rtol=1e-9)
        charged = dict(zip(communicator.kinds, communicator.take_charges()[0], strict=True))
        assert charged["values"] == sum(charged.values()) == 8 * (rank * (12 + 10) + 7)


def test_the_means_are_those_of_torchs_hook() -> None:
    """20 steps with feedback and warm start, in two processes; torch orthogonalises by Gram-Schmidt or QR.

    They agree to 12 digits in fp64, so the algorithms are the same. In fp32 the rounding errors of a subspace
    grow where two singular values are close, as happens with feedback.
    """
    for found in run_in_processes(means_of_both, 2):
        for name, (ours, torchs) in found.items():
            assert ours.shape == (20, NUM_ELEMENTS)
            differences = (ours - torchs).norm(dim=1) / torchs.norm(dim=1)
            assert differences.max() < (1e-12 if "float64" in name else 2e-4), name
            assert differences[:4].max() < 1e-5, name


def test_a_step_without_gradient_does_not_end_compression() -> None:
    """Q is zero after such a step; the mean of the next step is finite and not zero."""
    reducer, communicator = PowerSGD(rank=2), communicator_for(PowerSGD(rank=2), W)
    state = reducer.init([Segment("a", torch.zeros(W, 120), (SHAPE,))])
    for step, rows in enumerate([torch.zeros(W, 120), gradients(1)[:, :120].float()]):
        given = [Segment("a", rows.clone(), (SHAPE,))]
        reduced, state = reducer.reduce(inputs_of(given), state, Step(0, step), communicator)
        assert torch.isfinite(reduced.mean["a"]).all()
        assert reduced.mean["a"].any() == rows.any()


def test_a_matrix_that_would_not_become_smaller_is_sent_as_it_is() -> None:
    given = [Segment("a", torch.ones(1, 6), ((2, 3),)), Segment("b", torch.ones(1, 60), ((6, 10),))]
    assert PowerSGD(rank=2).init(given).state.keys() == {"b/0"}
    assert PowerSGD(rank=4).init(given).state.keys() == set()


def test_the_drawn_factors_are_the_same_for_any_default_dtype() -> None:
    own, reducer = segments(torch.zeros(W, D)), PowerSGD(rank=2)
    found = []
    try:
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            found += reducer._drawn(own, 4).values()
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(*found)
