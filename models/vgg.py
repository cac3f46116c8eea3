"""VGG with BatchNorm (Simonyan and Zisserman, 2015, https://arxiv.org/abs/1409.1556), torchvision's."""

from collections import OrderedDict

from torch import nn

import data.torchvision_shim  # noqa: F401  must precede the first import of torchvision
from models.variant import is_imagenet, like


def vgg11(*, input_shape: tuple[int, ...], num_classes: int, variant: str = "auto") -> nn.Module:
    """VGG-11 (configuration A) with BatchNorm.

    Small: torchvision's features and one linear layer, 9,231,114 parameters for 3 channels and 10
    classes. A max-pooling whose output would be smaller than one pixel is left out: 32x32 images have
    five poolings, 28x28 images four, 8x8 images three. Imagenet: torchvision's vgg11_bn with its
    three-layer classifier, 132,868,840 parameters for 1000 classes. ``variant`` auto means imagenet
    above 64 pixels; ``input_shape`` is (channels, height, width). Raises ``ValueError`` for samples that
    are not images and for invalid settings.
    """
    return _vgg("vgg11", "A", input_shape, num_classes, variant)


def vgg16(*, input_shape: tuple[int, ...], num_classes: int, variant: str = "auto") -> nn.Module:
    """VGG-16 (configuration D) with BatchNorm; variants, settings and errors as in ``vgg11``.

    Small: 14,728,266 parameters for 3 channels and 10 classes. Imagenet: 138,365,992 for 1000.
    """
    return _vgg("vgg16", "D", input_shape, num_classes, variant)


def vgg19(*, input_shape: tuple[int, ...], num_classes: int, variant: str = "auto") -> nn.Module:
    """VGG-19 (configuration E) with BatchNorm; variants, settings and errors as in ``vgg11``.

    Small: 20,040,522 parameters for 3 channels and 10 classes. Imagenet: 143,678,248 for 1000.
    """
    return _vgg("vgg19", "E", input_shape, num_classes, variant)


def _vgg(
    name: str, configuration: str, input_shape: tuple[int, ...], num_classes: int, variant: str
) -> nn.Module:
    import torchvision.models
    from torchvision.models.vgg import cfgs, make_layers

    channels, *sides = input_shape if len(input_shape) == 3 else (0,)
    if is_imagenet(name, input_shape, variant):
        model = getattr(torchvision.models, f"{name}_bn")(num_classes=num_classes)
        if channels != 3:
            model.features[0] = like(model.features[0], channels=channels)
        return model
    layers: list[nn.Module] = []
    side = min(sides)
    for layer in make_layers(cfgs[configuration], batch_norm=True):
        if isinstance(layer, nn.Conv2d):
            layers.append(like(layer, channels=layer.in_channels if layers else channels))
        elif not isinstance(layer, nn.MaxPool2d):
            layers.append(layer)
        elif side >= 2:
            side //= 2
            layers.append(layer)
    parts = {
        "features": nn.Sequential(*layers),
        "avgpool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "classifier": nn.Linear(512, num_classes),
    }
    return nn.Sequential(OrderedDict(parts))
