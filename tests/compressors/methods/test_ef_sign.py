"""EF-sign against its definition in NumPy."""

import numpy as np
import torch
from methods import reduce_once

from compressors.api import Step
from compressors.build import build_reducer
from compressors.ef_sign import EFSign
from compressors.feedback import ErrorFeedback

SHAPES = ((20, 10), (50,), (1,), (7, 3, 3, 3))
SIZE = 200 + 50 + 1 + 189
STEP = Step(0, 0, segment="a", shapes=SHAPES)


def drawn(seed: int = 0) -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed)) ** 3


def definition(x: np.ndarray, edges: list[int]) -> np.ndarray:
    """(||x||_1 / d) sign(x) of each layer, where 0 is positive."""
    layers = [layer.astype(np.float64) for layer in np.split(x, edges)]
    scales = [np.float32(np.abs(layer).mean()) for layer in layers]
    return np.concatenate([np.where(x >= 0, s, -s) for x, s in zip(layers, scales, strict=True)])


def test_definition() -> None:
    x = drawn()
    x[:5] = torch.tensor([0.0, -0.0, 1e-30, -1e30, 0.0])
    rest, sent = x.clone(), torch.zeros(SIZE)
    payload = EFSign().encode(rest, STEP)
    EFSign().add(payload, sent, STEP)
    expected = definition(x.numpy(), [200, 250, 251]).astype(np.float32)
    np.testing.assert_array_equal(sent.numpy(), expected)
    np.testing.assert_array_equal(rest.numpy(), x.numpy() - expected)
    assert [field.nbytes for field in payload] == [SIZE // 8, 4 * len(SHAPES)]


def test_feedback_over_steps() -> None:
    """e' = p - C(p) with p = lr g + e, and the mean of C(p) over lr (algorithm 1)."""
    reducer, state = build_reducer(EFSign(), 40, lambda inner: ErrorFeedback(inner, scale="step")), None
    residual = np.zeros((3, 40), dtype=np.float32)
    for number in range(4):
        g = torch.randn(3, 40, generator=torch.Generator().manual_seed(number))
        p = residual + np.float32(0.25) * g.numpy()
        sent = np.stack([definition(row, []) for row in p]).astype(np.float32)
        reduced, state, _ = reduce_once(reducer, g, state, number, 0.25)
        residual = p - sent
        np.testing.assert_allclose(reduced.mean["a"].numpy(), sent.mean(0) / 0.25, rtol=1e-5)
        np.testing.assert_allclose(state.residual["a"].numpy(), residual, rtol=1e-5, atol=1e-7)
