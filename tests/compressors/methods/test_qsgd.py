"""QSGD's packed bits, and the feedback that it refuses."""

import math

import pytest
import torch
from methods import named, plan

from compressors.build import build_reducer
from compressors.encoding.packing import join_bits, split_bits, widths_of
from compressors.qsgd import QSGD


@pytest.mark.parametrize("bits", range(2, 16))
def test_codes_of_any_width(bits: int) -> None:
    codes = torch.randint(0, 2**bits, (1001,), generator=torch.Generator().manual_seed(0), dtype=torch.int16)
    packed = split_bits(codes, bits)
    assert sum(widths_of(bits)) == bits
    assert [part.numel() for part in packed] == [math.ceil(1001 * width / 8) for width in widths_of(bits)]
    assert torch.equal(join_bits(packed, bits, 1001), codes)


def test_feedback_is_refused_unless_the_variance_is_small() -> None:
    refused = r"feedback must be none, got ErrorFeedback: QSGD's variance of up to 1\.19 \|\|x\|\|\^2"
    with pytest.raises(ValueError, match=refused):
        QSGD().check(plan())
    QSGD().check(plan(feedback="", needs_contraction=False))
    QSGD(bucket_size=256).check(plan())
    QSGD(bits=8).check(plan())
    with pytest.raises(ValueError, match=r"up to 22\.6 \|\|x\|\|"):
        QSGD(bits=2, norm="l2").check(plan())
    for parts in ("chain", "two_way"):  # their residuals are those of both parts together
        build_reducer(named(parts, {}).method(), 1000).check(plan())
