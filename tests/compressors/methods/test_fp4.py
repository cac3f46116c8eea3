"""FP4 against the nearest of its numbers in NumPy, its ties, and its bits per entry."""

import numpy as np
import pytest
import torch

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.fp4 import FP4
from trainers.comm.communicator import Communicator

N, D, BUCKET = 3, 1000, 64
NUMBERS = np.array([0, *(2.0**-power for power in range(7))])


@pytest.mark.parametrize("power", [1, 5])  # of normal numbers: few small entries, and many
def test_definition(power: int) -> None:
    """Each entry becomes the nearest number of its bucket; the mean is that of all workers."""
    draw = torch.Generator().manual_seed(power)
    x = torch.randn(N, D, generator=draw, dtype=torch.float64).pow(power).float().double()
    reducer, communicator = build_reducer(FP4(bucket_size=BUCKET), D), Communicator(N)
    communicator.declare_kinds(reducer.kinds)
    segments = [Segment("a", x.clone(), ((D,),))]
    reduced, _ = reducer.reduce(inputs_of(segments), reducer.init(segments), Step(0, 0), communicator)
    expected = np.zeros((N, D))
    for own, out in zip(x.numpy(), expected, strict=True):
        for begin in range(0, D, BUCKET):
            bucket = own[begin : begin + BUCKET]
            numbers = np.abs(bucket).max() * NUMBERS
            nearest = np.abs(np.abs(bucket)[:, None] - numbers).argmin(1)
            out[begin : begin + BUCKET] = np.sign(bucket) * numbers[nearest]
    np.testing.assert_array_equal(reduced.residual["a"].numpy(), x.numpy() - expected)
    np.testing.assert_allclose(reduced.mean["a"].numpy(), expected.mean(0), rtol=1e-12)
    charged = dict(zip(communicator.kinds, communicator.take_charges()[0], strict=True))
    assert charged["levels"] == D / 2 and charged["metadata"] == 4 * -(-D // BUCKET)


def test_ties_become_the_larger_number() -> None:
    x = torch.tensor([-1, 0.75, 0.75 - 2**-24, -0.375, 1 / 128, 1 / 128 - 2**-31, 1 / 64 - 2**-30, 0])
    rest = x.clone()
    FP4().encode(rest, Step(0, 0))
    assert (x - rest).tolist() == [-1, 1, 0.5, -0.5, 1 / 64, 0, 1 / 64, 0]
