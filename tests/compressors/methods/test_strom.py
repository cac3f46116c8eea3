"""The entries that Strom's method selects."""

import math

import torch

from compressors.api import Step
from compressors.hard_threshold import HardThreshold
from compressors.strom import Strom

THRESHOLD = 0.75


def test_the_selection_is_that_of_a_hard_threshold() -> None:
    """Entries equal to lambda, NaN and infinities are sent; the residuals of the latter are not finite."""
    x = torch.tensor([THRESHOLD, -THRESHOLD, 0.0, -0.0, 0.5, math.inf, -math.inf, math.nan, -3.0])
    step = Step(0, 0)
    strom, exact = Strom(threshold=THRESHOLD), HardThreshold(threshold=THRESHOLD)
    left = x.clone()
    payload = strom.encode(left, step)
    assert payload.positions(9).tolist() == exact.encode(x.clone(), step).indices.tolist()
    assert payload.words.dtype == torch.int32
    assert left[:5].tolist() == [0, 0, 0, 0, 0.5]
    assert left[-1] == -3.0 + THRESHOLD
    assert not left[5:8].isfinite().any()
