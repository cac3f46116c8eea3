"""ResNet (He et al., 2016, https://arxiv.org/abs/1512.03385): torchvision's, and those for CIFAR."""

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

import data.torchvision_shim  # noqa: F401  must precede the first import of torchvision
from data.checks import require_flag
from models.variant import check_images, is_imagenet, like


def resnet18(
    *,
    input_shape: tuple[int, ...],
    num_classes: int,
    variant: str = "auto",
    zero_init_residual: bool = False,
) -> nn.Module:
    """torchvision's ResNet-18; for small images with CIFAR's stem, a 3x3 convolution without max-pool.

    Small: 11,173,962 parameters for 3 channels and 10 classes, 11,220,132 for 100 classes. Imagenet:
    11,689,512 for 1000 classes. ``input_shape`` is (channels, height, width). ``variant`` is small,
    imagenet (torchvision's stem: a 7x7 convolution of stride 2 and a max-pool) or auto, which means
    imagenet above 64 pixels. With ``zero_init_residual`` the last BatchNorm weight of every block starts
    at 0, so that each block starts as the identity (Goyal et al., 2017,
    https://arxiv.org/abs/1706.02677). Raises ``ValueError`` for samples that are not images and for
    invalid settings.
    """
    return _resnet("resnet18", input_shape, num_classes, variant, zero_init_residual)


def resnet34(
    *,
    input_shape: tuple[int, ...],
    num_classes: int,
    variant: str = "auto",
    zero_init_residual: bool = False,
) -> nn.Module:
    """torchvision's ResNet-34; settings and errors as in ``resnet18``.

    Small: 21,282,122 parameters for 3 channels and 10 classes. Imagenet: 21,797,672 for 1000.
    """
    return _resnet("resnet34", input_shape, num_classes, variant, zero_init_residual)


def resnet50(
    *,
    input_shape: tuple[int, ...],
    num_classes: int,
    variant: str = "auto",
    zero_init_residual: bool = False,
) -> nn.Module:
    """torchvision's ResNet-50, with bottleneck blocks; settings and errors as in ``resnet18``.

    Small: 23,520,842 parameters for 3 channels and 10 classes. Imagenet: 25,557,032 for 1000.
    """
    return _resnet("resnet50", input_shape, num_classes, variant, zero_init_residual)


def _resnet(
    name: str, input_shape: tuple[int, ...], num_classes: int, variant: str, zero_init_residual: bool
) -> nn.Module:
    import torchvision.models

    require_flag("model.zero_init_residual", zero_init_residual)
    imagenet = is_imagenet(name, input_shape, variant)
    factory = getattr(torchvision.models, name)
    model = factory(num_classes=num_classes, zero_init_residual=zero_init_residual)
    if imagenet:
        if input_shape[0] != 3:
            model.conv1 = like(model.conv1, channels=input_shape[0])
    else:
        to_small(model, input_shape[0])
    return model


def to_small(model: nn.Module, channels: int) -> None:
    """Replace the stem of a torchvision ResNet by one that keeps the resolution."""
    model.conv1 = like(nn.Conv2d(3, 64, 3, padding=1, bias=False), channels=channels)
    model.maxpool = nn.Identity()


def resnet20(
    *, input_shape: tuple[int, ...], num_classes: int, zero_init_residual: bool = False
) -> nn.Module:
    """ResNet-20 of section 4.2, for CIFAR: three stages of three blocks, 16, 32 and 64 channels wide.

    269,722 parameters for 3 channels and 10 classes. Shortcuts have no parameters (option A): they take
    every other pixel and pad the new channels with zeros. The blocks are torchvision's. Its ResNet class
    is not used because it has four stages and begins with 64 channels; the initialisation is the same.
    ``zero_init_residual`` and errors as in ``resnet18``.
    """
    return _for_cifar("resnet20", 3, input_shape, num_classes, zero_init_residual)


def resnet110(
    *, input_shape: tuple[int, ...], num_classes: int, zero_init_residual: bool = False
) -> nn.Module:
    """ResNet-110 of section 4.2: as ``resnet20`` with eighteen blocks in each stage.

    1,727,962 parameters for 3 channels and 10 classes. He et al. trained it at a tenth of the learning
    rate for the first 400 iterations.
    """
    return _for_cifar("resnet110", 18, input_shape, num_classes, zero_init_residual)


def _for_cifar(
    name: str, num_blocks: int, input_shape: tuple[int, ...], num_classes: int, zero_init_residual: bool
) -> nn.Module:
    """Three stages of ``num_blocks`` blocks of two convolutions, 6 ``num_blocks`` + 2 layers."""
    from torchvision.models.resnet import BasicBlock

    check_images(name, input_shape)
    require_flag("model.zero_init_residual", zero_init_residual)

    def stage(before: int, width: int) -> nn.Sequential:
        shortcut = None if before == width else PaddedShortcut(width - before)
        first = BasicBlock(before, width, 1 if before == width else 2, shortcut)
        return nn.Sequential(first, *(BasicBlock(width, width) for _ in range(num_blocks - 1)))

    layers = {
        "conv1": nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False),
        "bn1": nn.BatchNorm2d(16),
        "relu": nn.ReLU(inplace=True),
        "layer1": stage(16, 16),
        "layer2": stage(16, 32),
        "layer3": stage(32, 64),
        "avgpool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "fc": nn.Linear(64, num_classes),
    }
    model = nn.Sequential(OrderedDict(layers))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, BasicBlock) and zero_init_residual:
            nn.init.zeros_(module.bn2.weight)
    return model


class PaddedShortcut(nn.Module):
    """Shortcut of option A: every other pixel, and ``added`` zero channels, half of them on either side."""

    def __init__(self, added: int) -> None:
        super().__init__()
        self.added = added

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C + added, ceil(H / 2), ceil(W / 2)]."""
        before = self.added // 2
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, before, self.added - before))
