"""QSGD's packed bits, the lengths of Elias' code, and the feedback that it refuses."""

import math

import pytest
import torch
from methods import named, plan

from compressors.build import build_reducer
from compressors.encoding.elias import dense_bits, omega_bits, sparse_bits
from compressors.encoding.packing import join_bits, split_bits, widths_of
from compressors.qsgd import QSGD


@pytest.mark.parametrize("bits", range(2, 16))
def test_codes_of_any_width(bits: int) -> None:
    codes = torch.randint(0, 2**bits, (1001,), generator=torch.Generator().manual_seed(0), dtype=torch.int16)
    packed = split_bits(codes, bits)
    assert sum(widths_of(bits)) == bits
    assert [part.numel() for part in packed] == [math.ceil(1001 * width / 8) for width in widths_of(bits)]
    assert torch.equal(join_bits(packed, bits, 1001), codes)


def omega(number: int) -> str:
    """Elias' omega code as a string of 0 and 1."""
    code = "0"
    while number > 1:
        digits = f"{number:b}"
        code, number = digits + code, len(digits) - 1
    return code


def test_lengths_are_those_of_elias_code() -> None:
    numbers = [*range(1, 70), 127, 128, 1000, 2**16, 2**40 + 1]
    assert omega_bits(torch.tensor(numbers)).tolist() == [len(omega(number)) for number in numbers]
    levels = torch.tensor([0, 3, 0, 0, 1, 2, 0])
    signs = "+-0"
    sparse = "".join(omega(gap) + signs[0] + omega(level) for gap, level in ((2, 3), (3, 1), (1, 2)))
    assert sparse_bits(levels) == 32 + len(sparse)
    dense = "".join(omega(level + 1) + signs[1] * (level > 0) for level in levels.tolist())
    assert dense_bits(levels) == 32 + len(dense)


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
