"""ResNet (He et al., 2016, https://arxiv.org/abs/1512.03385), torchvision's, for small images."""

from torch import nn

import data.torchvision_shim  # noqa: F401  has to come before the first import of torchvision
from data.checks import require_flag


def resnet18(
    *, input_shape: tuple[int, ...], num_classes: int, zero_init_residual: bool = False
) -> nn.Module:
    """torchvision's ResNet-18 with CIFAR's stem: a 3x3 convolution of stride 1 and no max-pool.

    11,173,962 parameters for 3 channels and 10 classes, 11,220,132 for 100. ``input_shape`` is
    (channels, height, width). With ``zero_init_residual`` the last BatchNorm of every block starts
    at 0, so that each block starts as the identity (Goyal et al., 2017,
    https://arxiv.org/abs/1706.02677). Raises ``ValueError`` for any other shape.
    """
    from torchvision.models import resnet18 as torchvision_resnet18

    require_flag("model.zero_init_residual", zero_init_residual)
    if len(input_shape) != 3:
        raise ValueError(
            f"model=resnet18 needs images (channels, height, width), got samples of shape {input_shape}"
        )
    model = torchvision_resnet18(num_classes=num_classes, zero_init_residual=zero_init_residual)
    model.conv1 = nn.Conv2d(input_shape[0], 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
    return model
