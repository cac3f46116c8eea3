"""SENet (Hu et al., 2018, https://arxiv.org/abs/1709.01507): squeeze and excitation in a ResNet."""

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

import data.torchvision_shim  # noqa: F401  must precede the first import of torchvision
from models.resnet import to_small
from models.variant import check_images, is_imagenet, like

REDUCTION = 16  # ratio of channels to those of the squeezed layer
RELEASED_WIDTHS = (64, 128, 256, 516)  # channels of the four stages


def senet18(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """SENet-18 as the code of Sahu et al., 2021, https://arxiv.org/abs/2108.00951, builds it.

    11,389,726 parameters for 3 channels and 10 classes, 11,436,256 for 100 classes. Deviations from Hu et
    al.: every convolution has a bias, the branch ends in a ReLU, the last stage has 516 channels. The
    initialisation is torch's default. Stem and first stage keep the resolution;
    ``senet18_preactivation`` has a variant for large images. ``input_shape`` is (channels, height,
    width). Raises ``ValueError`` for samples that are not images.
    """
    from torchvision.ops import Conv2dNormActivation

    check_images("senet18", input_shape)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["stem"] = Conv2dNormActivation(input_shape[0], 64, 3, bias=True)
    before = 64
    for number, width in enumerate(RELEASED_WIDTHS, 1):
        first = PostActivationBlock(before, width, stride=1 if number == 1 else 2)
        layers[f"stage{number}"] = nn.Sequential(first, PostActivationBlock(width, width))
        before = width
    layers["average"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["linear"] = nn.Linear(before, num_classes)
    return nn.Sequential(layers)


class PostActivationBlock(nn.Module):
    """Convolution, BatchNorm and ReLU, twice; channel weights; plus a shortcut; ReLU.

    If the shape changes, the shortcut is a 1x1 convolution and BatchNorm.
    """

    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        from torchvision.ops import Conv2dNormActivation

        self.branch = nn.Sequential(
            Conv2dNormActivation(before, width, 3, stride=stride, bias=True),
            Conv2dNormActivation(width, width, 3, bias=True),
        )
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, width // REDUCTION),
            nn.ReLU(),
            nn.Linear(width // REDUCTION, width),
            nn.Sigmoid(),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != width:
            self.shortcut = Conv2dNormActivation(
                before, width, 1, stride=stride, bias=True, activation_layer=None
            )

    def forward(self, x: Tensor) -> Tensor:
        """[B, before, H, W] to [B, width, ceil(H / stride), ceil(W / stride)]."""
        out = self.branch(x)
        scale = self.scale(out)[:, :, None, None]  # [B, width, 1, 1]
        return F.relu(scale * out + self.shortcut(x))


def senet18_preactivation(
    *, input_shape: tuple[int, ...], num_classes: int, variant: str = "auto"
) -> nn.Module:
    """SENet-18 with pre-activation blocks (He et al., 2016, https://arxiv.org/abs/1603.05027).

    Small: 11,260,354 parameters for 3 channels and 10 classes, the number that Sahu et al., 2021,
    https://arxiv.org/abs/2108.00951, print, but their code builds ``senet18``; 11,306,524 for 100
    classes. Deviations from Hu et al.: BatchNorm and ReLU come before the convolutions; there is no
    BatchNorm in shortcuts or before the classifier. The network is torchvision's ResNet class with
    these blocks, its squeeze-and-excitation layer and its initialisation.

    Imagenet: torchvision's stem, 11,775,904 parameters for 1000 classes; torchvision has no SENet.
    ``variant`` auto means imagenet above 64 pixels. ``input_shape`` is (channels, height, width).
    Raises ``ValueError`` for samples that are not images and for invalid settings.
    """
    from torchvision.models import ResNet

    imagenet = is_imagenet("senet18_preactivation", input_shape, variant)
    model = ResNet(SqueezeExcitationBlock, [2, 2, 2, 2], num_classes=num_classes)
    if not imagenet:
        to_small(model, input_shape[0])
    elif input_shape[0] != 3:
        model.conv1 = like(model.conv1, channels=input_shape[0])
    return model


class SqueezeExcitationBlock(nn.Module):
    """BatchNorm, ReLU and a 3x3 convolution, twice; channel weights; plus a shortcut.

    A shortcut that changes the shape is a 1x1 convolution of the activated input.
    """

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        *_: object,
        **__: object,
    ) -> None:
        """torchvision's ResNet calls this; its further arguments keep their defaults here."""
        super().__init__()
        from torchvision.ops import SqueezeExcitation

        self.bn1 = nn.BatchNorm2d(inplanes)
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.excitation = SqueezeExcitation(planes, planes // REDUCTION)
        self.shortcut = (
            downsample[0] if isinstance(downsample, nn.Sequential) else None
        )  # without its BatchNorm

    def forward(self, x: Tensor) -> Tensor:
        """[B, inplanes, H, W] to [B, planes, ceil(H / stride), ceil(W / stride)]."""
        active = F.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        out = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return self.excitation(out) + shortcut
