"""ResNet-18, logistic regression and MLP: sizes, shapes, initialisation, refusals."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from models.linear import logistic_regression
from models.mlp import mlp
from models.resnet import resnet18


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_resnet18_starts_as_torchvision_starts_its_own() -> None:
    """Kaiming's initialisation by fan-out: the stem's standard deviation is sqrt(2 / (64 * 9))."""
    torch.manual_seed(0)
    model = resnet18(input_shape=(3, 8, 8), num_classes=10).eval()
    assert model.conv1.weight.std().item() == pytest.approx(math.sqrt(2 / 576), rel=0.1)
    assert model.layer4[1].conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.1)
    assert model(torch.randn(2, 3, 8, 8)).isfinite().all()
    assert all((block.bn2.weight == 1).all() for block in model.layer1)


@pytest.mark.parametrize(("shape", "classes"), [((30,), 2), ((1, 8, 8), 10), ((3, 4, 5), 100)])
def test_logistic_regression_starts_at_ln_classes(shape: tuple[int, ...], classes: int) -> None:
    model = logistic_regression(input_shape=shape, num_classes=classes)
    assert num_parameters(model) == (math.prod(shape) + 1) * classes
    outputs = model(torch.randn(7, *shape))
    assert outputs.shape == (7, classes)
    loss = F.cross_entropy(outputs, torch.arange(7) % classes)
    assert loss.item() == pytest.approx(math.log(classes), rel=1e-6)


def test_logistic_regression_by_hand() -> None:
    model = logistic_regression(input_shape=(2, 1), num_classes=2)
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        model[1].bias.copy_(torch.tensor([0.5, -0.5]))
    assert model(torch.tensor([[[1.0], [10.0]]])).tolist() == [[21.5, 42.5]]


def test_mlp_size_and_shape() -> None:
    model = mlp(input_shape=(1, 8, 8), num_classes=10, hidden=[20, 30])
    assert num_parameters(model) == 64 * 20 + 20 + 20 * 30 + 30 + 30 * 10 + 10
    assert model(torch.randn(7, 1, 8, 8)).shape == (7, 10)


def test_mlp_is_linear_relu_linear() -> None:
    model = mlp(input_shape=(4,), num_classes=3, hidden=[5]).eval()
    first, last = (layer for layer in model if isinstance(layer, nn.Linear))
    inputs = torch.randn(6, 4)
    expected = (inputs @ first.weight.T + first.bias).clamp(min=0) @ last.weight.T + last.bias
    torch.testing.assert_close(model(inputs), expected)


def test_mlp_drops_only_in_training() -> None:
    torch.manual_seed(0)
    model = mlp(input_shape=(4,), num_classes=3, hidden=[50], dropout=0.5)
    inputs = torch.randn(6, 4)
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))
    dropped = (model.train()[:4](torch.ones(2000, 4)) == 0).float().mean().item()
    dead = (model.eval()[:4](torch.ones(1, 4)) == 0).float().mean().item()
    assert dropped == pytest.approx(0.5 + 0.5 * dead, abs=0.02)


@pytest.mark.parametrize("hidden", [[0], [8, -1], [1.5], ["8"], [None], "88"])
def test_mlp_refuses_bad_widths(hidden) -> None:
    with pytest.raises(ValueError, match=r"model\.hidden must be a list of integers >= 1, got") as refusal:
        mlp(input_shape=(4,), num_classes=3, hidden=hidden)
    assert repr(hidden) in str(refusal.value)
