"""PULSELoCo's entries against NumPy's rounding to bfloat16, with the weights of a model that moves."""

import numpy as np
import pytest
import torch
from torch import nn

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.visible import Visible
from trainers.comm.communicator import Communicator
from trainers.step.layout import Layout

N, STEPS = 3, 4


def bf16(x: np.ndarray) -> np.ndarray:
    """The upper 16 bits of fp32 ``x``, rounded to nearest, ties to even."""
    bits = x.view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_definition(scope: str) -> None:
    """An entry of p is sent if it changes the bfloat16 of its weight; the mean is over all workers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.Linear(7, 5)).to(memory_format=torch.channels_last)
    layout = Layout(dict(model.named_parameters()), scope)
    rows = layout.new_buffer(N)
    segments = layout.segments(rows)
    reducer, communicator = ErrorFeedback(build_reducer(Visible(), layout.num_parameters)), Communicator(N)
    communicator.declare_kinds(reducer.kinds)
    state, kept = reducer.init(segments), np.zeros((N, layout.num_parameters), np.float32)
    for number in range(STEPS):
        rows.copy_(1e-3 * torch.randn(rows.shape))
        weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
        p = kept + rows.numpy()
        visible = bf16(weights - p) != bf16(weights)
        assert 0.2 < visible.mean() < 0.8
        kept = np.where(visible, np.float32(0), p)
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, number), communicator)
        mean = torch.cat([reduced.mean[own.name] for own in segments]).numpy()
        residual = torch.cat([state.residual[own.name] for own in segments], 1).numpy()
        np.testing.assert_array_equal(residual, kept)
        np.testing.assert_allclose(mean, np.where(visible, p, 0).mean(0), rtol=1e-6, atol=1e-12)
        layout.write_gradients(reduced.mean)
        torch.optim.SGD(model.parameters(), lr=0.7).step()


def test_a_segment_without_weights_is_refused() -> None:
    segments = [Segment("a", torch.ones(N, 4), ((4,),))]
    reducer = build_reducer(Visible(), 4)
    with pytest.raises(ValueError, match="Visible needs the 4 weights of segment 'a'"):
        reducer.reduce(inputs_of(segments), (), Step(0, 0), Communicator(N))
