"""Unbiased Random-k against its definition: values times d / k, its variance, and feedback."""

import numpy as np
import pytest
import torch
from methods import reduce_once

from compressors.api import Step
from compressors.build import build_reducer
from compressors.random_k import RandomK

SIZE, K = 30, 4


@pytest.mark.parametrize("shared", [True, False])
def test_definition(shared: bool) -> None:
    """C(x) = (d / k) x_S at the coordinates S of plain Random-k; the result is the mean of C(x)."""
    g = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(0))
    plain, scaled = (
        RandomK(density=K / SIZE, shared_coordinates=shared, unbiased=unbiased) for unbiased in (False, True)
    )
    expected = np.zeros(SIZE)
    for worker, x in enumerate(g):
        step = Step(0, 0, segment="a", shapes=((SIZE,),), worker=worker)
        where = plain.encode(x.clone(), step).indices.long().numpy()
        expected[where] += SIZE / K * x.numpy()[where] / 3
    reduced, _, communicator = reduce_once(build_reducer(scaled, SIZE), g)
    np.testing.assert_allclose(reduced.mean["a"].numpy(), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose((g - reduced.residual["a"]).mean(0).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert communicator.take_charges()[:, :2].tolist() == [[4 * K, 0 if shared else 4 * K]] * 3
