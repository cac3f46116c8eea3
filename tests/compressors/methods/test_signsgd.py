"""signSGD's majority vote against NumPy: votes, ties, bytes and refusals."""

import numpy as np
import pytest
import torch
from chances import hoeffding
from methods import communicator_for, named, plan, reduce_once

from compressors.signsgd import SignSGD

SIZE = 4000


def gradients(workers: int) -> torch.Tensor:
    g = torch.randn(workers, SIZE, generator=torch.Generator().manual_seed(workers))
    g[:, 0], g[:, 1] = 0.0, -1.0
    return g


@pytest.mark.parametrize("workers", [1, 3, 4, 5])
def test_definition(workers: int) -> None:
    """The sign of the sum of signs, where 0 is positive; C(p) of a worker is its signs."""
    g = gradients(workers)
    reduced, _, _ = reduce_once(SignSGD(), g)
    signs = np.where(g.numpy() >= 0, 1, -1)
    sums = signs.sum(0)
    mean = reduced.mean["a"].numpy()
    assert (mean[sums != 0] == np.sign(sums)[sums != 0]).all()
    assert set(mean.tolist()) == {-1.0, 1.0}
    np.testing.assert_array_equal(reduced.residual["a"].numpy(), g.numpy() - signs.astype(np.float32))


def test_ties_are_drawn_or_positive() -> None:
    g = gradients(4)
    tied = torch.where(g >= 0, 1, -1).sum(0) == 0
    assert tied.sum() > 1000
    first, second = (reduce_once(SignSGD(), g, step=step)[0].mean["a"] for step in (0, 1))
    assert torch.equal(first[~tied], second[~tied])
    assert not torch.equal(first[tied], second[tied])
    for drawn in (first, second):
        assert abs((drawn[tied] > 0).sum().item() - tied.sum().item() / 2) < hoeffding(int(tied.sum()))
    positive = reduce_once(SignSGD(ties="positive"), g)[0].mean["a"]
    assert (positive[tied] == 1).all()
    assert torch.equal(positive[~tied], first[~tied])


def test_one_bit_up_and_one_bit_down() -> None:
    """A worker sends n - 1 of n parts of its sign bits, and the votes on its own part to n - 1 workers."""
    workers = 5
    reducer = named("signsgd", {}).method()
    communicator = communicator_for(reducer, workers)
    reduce_once(reducer, gradients(workers), communicator=communicator)
    bits = SIZE // 8  # bytes of a bit per element
    charged = communicator.take_charges()[:, communicator.kinds.index("signs")]
    assert charged.tolist() == [bits + bits // workers] * workers
    sent, received = communicator.take_link_bytes().T
    assert sent.tolist() == received.tolist() == [2 * bits * (workers - 1) // workers] * workers


def test_feedback_is_refused() -> None:
    with pytest.raises(ValueError, match=r"feedback must be none with signsgd.*, got 'ErrorFeedback'"):
        SignSGD().check(plan())
    SignSGD().check(plan(feedback="", needs_contraction=False))
