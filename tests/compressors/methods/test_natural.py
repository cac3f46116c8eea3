"""Natural compression at the ends of fp32's range."""

import torch
from chances import hoeffding

from compressors.api import Step
from compressors.natural import Natural


def compressed(x: torch.Tensor) -> torch.Tensor:
    rest = x.clone()
    Natural().encode(rest, Step(0, 0, segment="a"))
    return x - rest


def test_the_ends_of_the_range() -> None:
    """Subnormal entries become 0 or 2^-126, unbiased; the largest stays finite; infinity and NaN remain."""
    tiny = torch.full((20000,), 2.0**-128)
    sent = compressed(tiny)
    assert set(sent.tolist()) == {0.0, 2.0**-126}
    assert abs((sent > 0).sum() - 5000) < hoeffding(20000)
    largest = torch.full((100,), torch.finfo(torch.float32).max)
    assert set(compressed(largest).tolist()) == {2.0**127}
    rest = torch.tensor([float("inf"), float("nan"), 1.0])
    Natural().encode(rest, Step(0, 0))
    assert not rest[:2].isfinite().any()
    assert rest[2] == 0
