"""TernGrad against its definition in NumPy: scales, clipping, probabilities and packed bytes."""

import math

import numpy as np
import pytest
import torch
from chances import bernstein
from methods import named

from compressors.api import Step
from compressors.terngrad import TernGrad

SHAPES, EDGES = ((3000,), (40, 50), (1,)), [3000, 5000]
SIZE, DRAWS = 5001, 40
STEP = Step(0, 0, segment="a", shapes=SHAPES)


def sent_by(codec: TernGrad, x: torch.Tensor, step: Step = STEP) -> np.ndarray:
    rest, sent = x.clone(), torch.zeros_like(x)
    payload = codec.encode(rest, step)
    codec.add(payload, sent, step)
    np.testing.assert_array_equal(rest.numpy(), x.numpy() - sent.numpy())
    return sent.numpy().astype(np.float64)


def drawn() -> torch.Tensor:
    x = torch.randn(SIZE, generator=torch.Generator().manual_seed(0)) + 0.3
    x[3000:] *= 100
    x[:2] = torch.tensor([0.0, 9.0])
    return x


@pytest.mark.parametrize("clip", [2.5, None])
def test_definition(clip: float | None) -> None:
    """s sign(x) with probability min(1, |x| / s), else 0; s = min(max |x|, 2.5 standard deviations)."""
    codec, x = TernGrad(clip=clip), drawn()
    layers = np.split(x.numpy().astype(np.float64), EDGES)
    tops = [np.abs(layer).max() for layer in layers]
    if clip is not None:  # the layer of one entry has a standard deviation of 0 and is not clipped
        tops[:2] = [min(top, clip * layer.std()) for top, layer in zip(tops[:2], layers[:2], strict=True)]
    scales = np.concatenate([np.full(len(layer), s) for layer, s in zip(layers, tops, strict=True)])
    wide = np.concatenate(layers)
    clipped = np.minimum(np.abs(wide), scales) * np.sign(wide)
    total, variance = np.zeros(SIZE), np.abs(clipped) * (scales - np.abs(clipped))
    for number in range(DRAWS):
        sent = sent_by(codec, x, STEP._replace(number=number))
        sizes = np.abs(sent)
        assert np.isclose(sizes, scales, rtol=1e-6).sum() + (sizes == 0).sum() == SIZE
        assert (sent[sizes > 0] * wide[sizes > 0] > 0).all()
        assert (sizes[np.abs(wide) >= scales] > 0).all()
        total += sent
    for begin, end in ((0, 3000), (3000, 5000)):
        own = slice(begin, end)
        weights = np.sign(wide[own])  # so that a bias towards or away from zero adds up
        distance = abs((weights * (total - DRAWS * clipped)[own]).sum())
        assert (
            distance < bernstein(DRAWS * variance[own].sum(), scales[begin]) + 1e-5 * np.abs(wide[own]).sum()
        )
    if clip is None:
        np.testing.assert_allclose(codec.error_bound(x, STEP), variance.sum(), rtol=1e-5)


def test_packed_bytes() -> None:
    """4 and 5 values per byte give the same entries; the ratio's limit is the paper's 32 / log2(3) = 20.2."""
    x = drawn()
    two, less = TernGrad(values_per_byte=4), TernGrad(values_per_byte=5)
    np.testing.assert_array_equal(sent_by(two, x), sent_by(less, x))
    fields = [[field.nbytes for field in codec.encode(x.clone(), STEP)] for codec in (two, less)]
    assert fields == [[math.ceil(SIZE / 4), 12], [math.ceil(SIZE / 5), 12]]
    assert 19.9 < 4 * SIZE / math.ceil(SIZE / 5) < 32 / math.log2(3) == pytest.approx(20.2, abs=0.02)


def test_settings() -> None:
    assert named("terngrad", {}).method() == TernGrad(clip=2.5, values_per_byte=5)
    for clip in (0, -1.0, float("nan"), "2"):
        with pytest.raises(ValueError, match=r"TernGrad\.clip must be > 0, or null for no clipping, got"):
            TernGrad(clip=clip)
    with pytest.raises(ValueError, match=r"TernGrad\.values_per_byte must be 4 or 5, got 3"):
        TernGrad(values_per_byte=3)
