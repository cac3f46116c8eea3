"""GoogLeNet (Szegedy et al., 2014, https://arxiv.org/abs/1409.4842), torchvision's, for small images too."""

from functools import partial
from typing import Any

from torch import nn

import data.torchvision_shim  # noqa: F401  must precede the first import of torchvision
from models.variant import check_images, is_imagenet, like


def googlenet(*, input_shape: tuple[int, ...], num_classes: int, variant: str = "auto") -> nn.Module:
    """GoogLeNet with BatchNorm, without auxiliary classifiers.

    The small variant is the network of Sahu et al., 2021, https://arxiv.org/abs/2108.00951, for CIFAR-10:
    6,166,250 parameters for 3 channels and 10 classes. With 100 classes it has 6,258,500, the number that
    they print for CIFAR-100; their code builds ``googlenet_cifar100`` there. Deviations from Szegedy et
    al.: BatchNorm after every convolution, which keeps its bias; a stem of one 3x3 convolution with 192
    channels; two 3x3 convolutions for every 5x5 one; two max-poolings, so that 32x32 pixels become 8x8;
    no local response normalisation, no dropout. Network and blocks are torchvision's with these changes;
    the initialisation is torch's default.

    The imagenet variant is torchvision's network: BatchNorm, one 3x3 convolution for a 5x5 one, dropout
    0.2; 6,624,904 parameters for 1000 classes. ``variant`` auto means imagenet above 64 pixels.
    ``input_shape`` is (channels, height, width). Raises ``ValueError`` for samples that are not images
    and for invalid settings.
    """
    from torchvision.models import GoogLeNet
    from torchvision.ops import Conv2dNormActivation

    channels = input_shape[0] if input_shape else 0
    if is_imagenet("googlenet", input_shape, variant):
        model = GoogLeNet(num_classes, aux_logits=False, init_weights=True)
        if channels != 3:
            model.conv1.conv = like(model.conv1.conv, channels=channels)
        return model
    model = _small_googlenet(num_classes)
    model.conv1 = Conv2dNormActivation(channels, 192, 3, bias=True)
    return model


def googlenet_cifar100(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """GoogLeNet as the code of Sahu et al., 2021, builds it for CIFAR-100; for small images of any kind.

    6,402,564 parameters for 3 channels and 100 classes. Differences from the small ``googlenet``: the
    stem has three 3x3 convolutions of 64, 64 and 192 channels, without biases, and a max-pooling; whole
    channels are dropped with probability 0.4 before the linear layer. Raises ``ValueError`` for samples
    that are not images.
    """
    from torchvision.ops import Conv2dNormActivation

    check_images("googlenet_cifar100", input_shape)
    model = _small_googlenet(num_classes)
    model.conv1 = nn.Sequential(
        *(
            Conv2dNormActivation(before, width, 3, bias=False)
            for before, width in ((input_shape[0], 64), (64, 64), (64, 192))
        )
    )
    model.maxpool1 = _pooling()
    model.dropout = nn.Identity()
    model.avgpool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Dropout2d(0.4))  # input [B, 1024, 1, 1]
    return model


def _small_googlenet(num_classes: int) -> nn.Module:
    """torchvision's network with blocks for small images and two max-poolings; the caller sets the stem."""
    from torchvision.models import GoogLeNet
    from torchvision.models.googlenet import InceptionAux
    from torchvision.ops import Conv2dNormActivation

    model = GoogLeNet(
        num_classes,
        aux_logits=False,
        init_weights=False,
        blocks=[partial(Conv2dNormActivation, bias=True), _small_inception, InceptionAux],
        dropout=0.0,
    )
    for name in ("maxpool1", "conv2", "conv3", "maxpool2"):
        setattr(model, name, nn.Identity())
    for name in ("maxpool3", "maxpool4"):  # torchvision's pooling would reduce a single pixel to nothing
        setattr(model, name, _pooling())
    return model


def _pooling() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, padding=1)


def _small_inception(*widths: int) -> nn.Module:
    """torchvision's block with biases, and two 3x3 convolutions in place of the paper's 5x5 one."""
    from torchvision.models.googlenet import Inception
    from torchvision.ops import Conv2dNormActivation

    convolution: Any = partial(Conv2dNormActivation, bias=True)
    block = Inception(*widths, conv_block=convolution)
    block.branch3.append(convolution(widths[5], widths[5], kernel_size=3))
    return block
