"""Entries at the ends of a dtype's range, equal entries, and entries that are not finite."""

import math

import pytest
import torch
from chances import hoeffding

from compressors.api import Step
from compressors.hard_threshold import HardThreshold
from compressors.natural import Natural
from compressors.qsgd import QSGD
from compressors.strom import Strom
from compressors.terngrad import TernGrad

STEP = Step(0, 0, segment="a")


def sent_by(codec: Natural, x: torch.Tensor) -> torch.Tensor:
    rest = x.clone()
    codec.encode(rest, STEP)
    return x - rest


def test_natural_compression() -> None:
    """Subnormal entries become 0 or 2^-126, unbiased; the largest stays finite; infinity and NaN remain."""
    sent = sent_by(Natural(), torch.full((20000,), 2.0**-128))
    assert set(sent.tolist()) == {0.0, 2.0**-126}
    assert abs((sent > 0).sum() - 5000) < hoeffding(20000)
    largest = torch.full((100,), torch.finfo(torch.float32).max)
    assert set(sent_by(Natural(), largest).tolist()) == {2.0**127}
    rest = torch.tensor([math.inf, math.nan, 1.0])
    Natural().encode(rest, STEP)
    assert not rest[:2].isfinite().any()
    assert rest[2] == 0


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("size", [1e-36, 1e-30, 1e19, 1e38])
def test_qsgd(norm: str, size: float) -> None:
    x = torch.randn(256, generator=torch.Generator().manual_seed(0)).clamp(-3, 3) * size
    rest = x.clone()
    QSGD(bits=8, norm=norm, bucket_size=64).encode(rest, STEP)
    assert rest.isfinite().all()
    assert rest.abs().max() <= 3.2 * size * (8 if norm == "l2" else 1) / 64


def test_strom_selects_as_a_hard_threshold() -> None:
    """Entries equal to lambda, NaN and infinities are sent; the residuals of the latter are not finite."""
    x = torch.tensor([0.75, -0.75, 0.0, -0.0, 0.5, math.inf, -math.inf, math.nan, -3.0])
    left = x.clone()
    payload = Strom(threshold=0.75).encode(left, STEP)
    exact = HardThreshold(threshold=0.75).encode(x.clone(), STEP)
    assert payload.positions(9).tolist() == exact.indices.tolist()
    assert payload.words.dtype == torch.int32
    assert left[:5].tolist() == [0, 0, 0, 0, 0.5]
    assert left[-1] == -3.0 + 0.75
    assert not left[5:8].isfinite().any()


def test_terngrad_does_not_clip_equal_entries_to_zero() -> None:
    x = torch.tensor([3.0, 3.0, 3.0, 7.0])
    payload = TernGrad(clip=2.5).encode(x, STEP._replace(shapes=((3,), (1,))))
    assert payload.scales.tolist() == [3.0, 7.0]
