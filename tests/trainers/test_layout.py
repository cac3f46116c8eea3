"""Layout: views of the flat buffer, the copy of the mean to the parameters, refusals."""

import pytest
import torch
from torch import nn

from trainers.step.layout import WHOLE, Layout


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_segments_are_views_of_the_buffer(scope: str) -> None:
    net = model()
    layout = Layout(dict(net.named_parameters()), scope)
    flat = layout.new_buffer(2)
    for segment in layout.segments(flat):
        assert segment.edges[0] == 0
        assert segment.edges[-1] == segment.rows.shape[1]
        segment.rows.fill_(1.0)
    assert torch.equal(flat, torch.ones(2, 11))


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_mean_reaches_the_parameters(scope: str) -> None:
    net = model()
    layout = Layout(dict(net.named_parameters()), scope)
    flat = torch.arange(11.0)
    mean = (
        {WHOLE: flat} if scope == "global" else dict(zip(layout.names, flat.split(layout.sizes), strict=True))
    )
    layout.write_gradients(mean)
    assert torch.equal(torch.cat([p.grad.flatten() for p in net.parameters()]), flat)
    assert net[0].weight.grad.shape == (2, 3)


def test_frozen_parameters_are_left_out() -> None:
    net = model()
    net[0].weight.requires_grad_(False)
    assert Layout(dict(net.named_parameters()), "layer").names == ["0.bias", "1.weight", "1.bias"]


def test_refusals() -> None:
    net = model()
    with pytest.raises(ValueError, match="scope must be layer or global, got 'both'"):
        Layout(dict(net.named_parameters()), "both")
    with pytest.raises(ValueError, match="trainable parameters of one dtype"):
        Layout({}, "layer")
    net[1].double()
    with pytest.raises(ValueError, match="one dtype"):
        Layout(dict(net.named_parameters()), "layer")


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_a_parameter_without_elements_is_refused(scope: str) -> None:
    parameters = {"weight": nn.Parameter(torch.zeros(3)), "nothing": nn.Parameter(torch.zeros(2, 0))}
    with pytest.raises(ValueError, match="every trainable parameter must have elements, got none in nothing"):
        Layout(parameters, scope)


def test_complex_parameters_are_refused() -> None:
    weight = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(
        ValueError, match=r"must be real floating-point numbers, got torch\.complex64 in weight"
    ):
        Layout({"weight": weight}, "layer")
