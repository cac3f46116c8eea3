"""SENet-18 and both GoogLeNets of Sahu et al.'s release, compared with functional definitions.

The definitions take the weights in the order of use, so they do not depend on names.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.googlenet import googlenet, googlenet_cifar100
from models.senet import senet18

Factory = Callable[..., nn.Module]
INCEPTIONS = (  # 1x1; 3x3 reduced, 3x3; 5x5 reduced, 5x5; after pooling
    [(64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)],
    [
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ],
    [(256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)],
)


class Layers:
    """Functional layers that take the next weights of a model, and check their shapes."""

    def __init__(self, model: nn.Module, training: bool) -> None:
        modules = (m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.BatchNorm2d, nn.Linear)))
        self.state = [
            {key: value.detach().clone() for key, value in module.state_dict().items()} for module in modules
        ]
        self.left: Iterator[dict[str, Tensor]] = iter(self.state)
        self.training = training

    def convolution(self, x: Tensor, width: int, size: int, *, stride: int = 1, bias: bool = True) -> Tensor:
        state = next(self.left)
        assert state["weight"].shape == (width, x.shape[1], size, size)
        assert ("bias" in state) == bias
        return F.conv2d(x, state["weight"], state.get("bias"), stride=stride, padding=size // 2)

    def norm(self, x: Tensor) -> Tensor:
        state = next(self.left)
        assert state["weight"].shape == (x.shape[1],)
        weights = (state["running_mean"], state["running_var"], state["weight"], state["bias"])
        return F.batch_norm(x, *weights, training=self.training, momentum=0.1, eps=1e-5)

    def linear(self, x: Tensor, width: int) -> Tensor:
        state = next(self.left)
        assert state["weight"].shape == (width, x.shape[1])
        return F.linear(x, state["weight"], state["bias"])

    def normed(self, x: Tensor, width: int, size: int, *, stride: int = 1, bias: bool = True) -> Tensor:
        """Convolution, BatchNorm, ReLU."""
        return F.relu(self.norm(self.convolution(x, width, size, stride=stride, bias=bias)))


def senet_by_description(layers: Layers, x: Tensor, classes: int) -> Tensor:
    x = layers.normed(x, 64, 3)
    for width, first_stride in ((64, 1), (128, 2), (256, 2), (516, 2)):
        for stride in (first_stride, 1):
            r = layers.normed(x, width, 3, stride=stride)
            r = layers.normed(r, width, 3)
            squeezed = F.relu(layers.linear(r.mean((2, 3)), width // 16))
            scale = torch.sigmoid(layers.linear(squeezed, width))
            if stride != 1 or x.shape[1] != width:
                x = layers.norm(layers.convolution(x, width, 1, stride=stride))
            x = F.relu(scale[:, :, None, None] * r + x)
    return layers.linear(x.mean((2, 3)), classes)


def inception_by_description(layers: Layers, x: Tensor, widths: tuple[int, ...]) -> Tensor:
    one, reduced3, three, reduced5, five, pooled = widths
    a = layers.normed(x, one, 1)
    b = layers.normed(layers.normed(x, reduced3, 1), three, 3)
    c = layers.normed(layers.normed(layers.normed(x, reduced5, 1), five, 3), five, 3)
    d = layers.normed(F.max_pool2d(x, 3, stride=1, padding=1), pooled, 1)
    return torch.cat([a, b, c, d], 1)


def groups_by_description(layers: Layers, x: Tensor) -> Tensor:
    for number, group in enumerate(INCEPTIONS):
        if number > 0:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        for widths in group:
            x = inception_by_description(layers, x, widths)
    return x.mean((2, 3), keepdim=True)


def googlenet_by_description(layers: Layers, x: Tensor, classes: int) -> Tensor:
    x = groups_by_description(layers, layers.normed(x, 192, 3))
    return layers.linear(x.flatten(1), classes)


def googlenet_cifar100_by_description(layers: Layers, x: Tensor, classes: int) -> Tensor:
    for width in (64, 64, 192):
        x = layers.normed(x, width, 3, bias=False)
    x = groups_by_description(layers, F.max_pool2d(x, 3, stride=2, padding=1))
    x = F.dropout2d(x, 0.4, training=layers.training)
    return layers.linear(x.flatten(1), classes)


DEFINITIONS = {
    senet18: senet_by_description,
    googlenet: googlenet_by_description,
    googlenet_cifar100: googlenet_cifar100_by_description,
}


@pytest.mark.parametrize("training", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("factory", DEFINITIONS, ids=lambda factory: factory.__name__)
def test_forward_is_what_the_description_says(factory: Factory, training: bool) -> None:
    """In training mode with batch statistics and equal dropout seeds, and with running statistics."""
    torch.manual_seed(0)
    model = factory(input_shape=(3, 32, 32), num_classes=10).train(training)
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 1.5)
    layers = Layers(model, training)
    images = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = DEFINITIONS[factory](layers, images, 10)
        torch.manual_seed(1)
        outputs = model(images)
    assert not list(layers.left), "the definition uses every layer"
    assert expected.std() > 0.01, "the outputs tell something"
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
