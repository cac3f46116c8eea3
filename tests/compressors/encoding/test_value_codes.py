"""Codes of values: rounding to nearest with ties to even, scales, error bounds, overflow, NaN, infinity."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compressors.encoding.value_codes import decode_values, encode_values

ROUNDED = ("bf16", "fp16", "int8", "int4", "int2")
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def rounded(code: str, values: Tensor, counts: np.ndarray | None = None) -> Tensor:
    counts = np.array([len(values)]) if counts is None else counts
    scales, codes = encode_values(code, values, counts)
    return decode_values(code, scales, codes, counts, values.dtype)


def test_floats_round_to_the_nearest_and_ties_to_even() -> None:
    step = 2.0**-7  # between bf16 numbers from 1 to 2
    values = torch.tensor([1 + step / 2, 1 + 1.5 * step, 1 + 0.51 * step, -1 - step / 2])
    assert rounded("bf16", values).tolist() == [1, 1 + 2 * step, 1 + step, -1]
    step = 2.0**-10
    values = torch.tensor([1 + step / 2, 1 + 1.5 * step, 2.0**-25, 2.0**-24])
    assert rounded("fp16", values).tolist() == [1, 1 + 2 * step, 0, 2.0**-24]


@pytest.mark.parametrize(
    ("code", "limit", "size", "bits"), [("int8", 127, 999, 8), ("int4", 7, 64, 4), ("int2", 1, 64, 2)]
)
def test_integers_are_steps_of_a_blocks_scale(code: str, limit: int, size: int, bits: int) -> None:
    """In NumPy: rint(x / scale) scale, scale = max |x| / limit of a layer (int8) or 64 of its values."""
    counts = np.array([100, 0, 64, 1, 130])
    values = torch.randn(295, generator=torch.Generator().manual_seed(0)) ** 3
    layers = [values.numpy()[:100], values.numpy()[100:164], values.numpy()[164:165], values.numpy()[165:]]
    blocks = [layer[start : start + size] for layer in layers for start in range(0, len(layer), size)]
    scales = [np.abs(block).max() / np.float32(limit) for block in blocks]
    expected = np.concatenate([np.rint(b / s) * s for b, s in zip(blocks, scales, strict=True)])
    np.testing.assert_array_equal(rounded(code, values, counts).numpy(), expected)
    sent = encode_values(code, values, counts)
    assert [part.nbytes for part in sent] == [4 * len(blocks), math.ceil(295 * bits / 8)]


@pytest.mark.parametrize("code", ROUNDED)
@given(st.lists(finite.filter(lambda x: abs(x) < 6e4), max_size=20))
@settings(deadline=None)
def test_what_arrives_and_what_was_lost_are_what_was_sent(code: str, numbers: list[float]) -> None:
    """values - arrived is exact in the same dtype, so error feedback loses nothing."""
    values = torch.tensor(numbers, dtype=torch.float32)
    arrived = rounded(code, values)
    assert torch.equal(arrived.double() + (values - arrived).double(), values.double())


@pytest.mark.parametrize("code", ROUNDED)
@given(st.lists(finite, min_size=1, max_size=20))
@settings(deadline=None)
def test_rounding_is_bounded(code: str, numbers: list[float]) -> None:
    values = torch.tensor(numbers, dtype=torch.float32).double()
    arrived = rounded(code, values.float()).double()
    assert arrived.isfinite().all()
    largest = values.abs().max()
    bound = {
        "bf16": values.abs() * 2.0**-8 + 2.0**-133,
        "fp16": (values.abs() * 2.0**-11 + 2.0**-25).maximum(values.abs() - 65504),
        "int8": (largest / 254 * (1 + 1e-5) + 128 * 2.0**-149).expand_as(values),
        "int4": (largest / 14 * (1 + 1e-5) + 8 * 2.0**-149).expand_as(values),
        "int2": (largest / 2 * (1 + 1e-5)).expand_as(values),
    }[code]
    assert ((values - arrived).abs() <= bound).all()


@pytest.mark.parametrize("code", ROUNDED)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_shows(code: str, bad: float) -> None:
    """The arrived values or the residual are not finite, so that the training is stopped."""
    values = torch.tensor([1.0, bad, 2.0])
    arrived = rounded(code, values)
    assert not (arrived.isfinite().all() and (values - arrived).isfinite().all())
    if code.startswith("int"):
        assert arrived.isnan().all()
