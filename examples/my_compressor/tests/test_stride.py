"""Tests of Stride: the contract of every compressor, and its own properties."""

import pytest
import torch
from my_compressor.stride import Stride

from compressors.api import Step
from total_error.testing import Contract, cases_of


class TestStride(Contract):
    cases = cases_of(Stride)


def test_the_offset_moves_with_the_step() -> None:
    x = torch.arange(1.0, 11.0)
    sent = Stride(every=4).encode(x.clone(), Step(seed=0, number=6))
    assert sent.indices.tolist() == [2, 6]
    assert sent.values.tolist() == [3.0, 7.0]


def test_every_entry_is_sent_once_in_a_round() -> None:
    times = torch.zeros(10)
    for number in range(4):
        positions = Stride(every=4).encode(torch.ones(10), Step(seed=0, number=number)).positions(10)
        times[positions] += 1
    assert times.tolist() == [1.0] * 10


def test_a_stride_is_a_count() -> None:
    with pytest.raises(ValueError, match=r"Stride\.every must be an integer >= 1, got 0"):
        Stride(every=0)
