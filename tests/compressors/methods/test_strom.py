"""Strom's method against its definition in NumPy."""

import math

import numpy as np
import pytest
import torch
from methods import reduce_once

from compressors.api import Step
from compressors.build import build_reducer
from compressors.encoding.settings import Encoding
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.strom import Strom

W, D, THRESHOLD = 3, 60, 0.75


def gradients(step: int) -> torch.Tensor:
    return torch.randn(W, D, generator=torch.Generator().manual_seed(step))


def test_it_is_its_definition() -> None:
    """C(p) = sign(p) lambda where |p| >= lambda, p' = p - C(p); 4 bytes an element sent, and a count."""
    reducer = build_reducer(Strom(threshold=THRESHOLD), D, ErrorFeedback)
    residual, state = np.zeros((W, D), dtype=np.float32), None
    for step in range(6):
        p = residual + gradients(step).numpy()
        sent = np.where(np.abs(p) >= THRESHOLD, np.sign(p) * np.float32(THRESHOLD), 0)
        residual = p - sent
        reduced, state, communicator = reduce_once(reducer, gradients(step), state, step)
        np.testing.assert_allclose(reduced.mean["a"].numpy(), sent.mean(0), atol=1e-6)
        np.testing.assert_array_equal(state.residual["a"].numpy(), residual)
        counts = (sent != 0).sum(1)
        assert reduced.compressed["a"].counts.tolist() == counts.tolist()
        charged = dict(zip(communicator.kinds, communicator.take_charges().T, strict=True))
        assert charged["indices"].tolist() == (4 * counts).tolist()
        assert charged["metadata"].tolist() == [4] * W
        assert charged["values"].tolist() == [0] * W


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


def test_refusals() -> None:
    for threshold in (0, -1.0, math.nan, math.inf, "0.1", True):
        with pytest.raises(ValueError, match=r"Strom\.threshold must be a finite number > 0, got"):
            Strom(threshold=threshold)
    with pytest.raises(ValueError, match=r"Strom\.density must be in \(0, 1\], got None"):
        Strom()
    with pytest.raises(ValueError, match="wire must be plain with Strom: it does not send one value"):
        build_reducer(Strom(threshold=1.0), D, ErrorFeedback, Encoding(indices="rice"))
