"""Layout: views of the flat buffer, the copy of the mean to the parameters, refusals."""

import re

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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rows_are_aligned_for_loads_of_16_bytes(dtype: torch.dtype) -> None:
    model = nn.Linear(3, 5).to(dtype)  # 20 entries, and one of a lone parameter
    model.register_parameter("scale", nn.Parameter(torch.ones(1, dtype=dtype)))
    parameters = dict(model.named_parameters())
    flat = Layout(parameters, "layer").new_buffer(3, aligned=True)
    assert flat.shape == (3, 21)
    assert [row.data_ptr() % 16 for row in flat] == [0, 0, 0]
    assert Layout(parameters, "global").new_buffer(3, aligned=True).is_contiguous()


def test_frozen_parameters_are_left_out() -> None:
    net = model()
    net[0].weight.requires_grad_(False)
    assert Layout(dict(net.named_parameters()), "layer").names == ["0.bias", "1.weight", "1.bias"]


def parameter(*shape: int, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape, dtype=dtype))


@pytest.mark.parametrize(
    ("parameters", "scope", "said"),
    [
        ([parameter(3)], "both", "scope must be layer or global, got 'both'"),
        ([], "layer", "trainable parameters of one dtype"),
        ([parameter(3), parameter(2, dtype=torch.float64)], "layer", "one dtype"),
        (
            [parameter(3), parameter(2, 0)],
            "layer",
            "trainable parameter must have elements, got none in p1",
        ),
        ([parameter(3), parameter(2, 0)], "global", "trainable parameter must have elements"),
        (
            [parameter(3), nn.Parameter(torch.zeros(2, device="meta"))],
            "layer",
            "must be on one device, got cpu and meta",
        ),
        ([parameter(2, dtype=torch.complex64)], "layer", "floating-point numbers, got torch.complex64 in p0"),
    ],
)
def test_refusals(parameters: list[nn.Parameter], scope: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Layout({f"p{number}": own for number, own in enumerate(parameters)}, scope)
