"""Variants of an image network: small (for small images) and imagenet (torchvision's)."""

from typing import Any

from torch import nn

VARIANTS = ("auto", "small", "imagenet")
LARGEST_SMALL = 64  # pixels; ImageNet's stems divide the resolution by four before the first block
SMALLEST_IMAGENET = 32  # pixels; these networks divide by 32 in all


def check_images(model: str, input_shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` unless samples are images (channels, height, width)."""
    if len(input_shape) != 3:
        raise ValueError(
            f"model={model} needs images (channels, height, width), got samples of shape {input_shape}"
        )


def is_imagenet(model: str, input_shape: tuple[int, ...], variant: str) -> bool:
    """Whether ``model`` takes the imagenet variant; ``auto`` means imagenet above 64 pixels.

    The shorter side of ``input_shape`` (channels, height, width) decides. Raises ``ValueError`` for
    samples that are not images, an unknown variant, and images too small for the imagenet variant.
    """
    check_images(model, input_shape)
    if variant not in VARIANTS:
        raise ValueError(f"model.variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    side = min(input_shape[1:])
    if variant == "imagenet" and side < SMALLEST_IMAGENET:
        raise ValueError(
            f"model.variant=imagenet needs images of at least {SMALLEST_IMAGENET} pixels, got {side}"
        )
    return variant == "imagenet" or (variant == "auto" and side > LARGEST_SMALL)


def like(convolution: nn.Conv2d, *, channels: int) -> nn.Conv2d:
    """A copy of ``convolution`` with ``channels`` inputs, initialised as in torchvision's ResNet."""
    shape: dict[str, Any] = {
        name: getattr(convolution, name) for name in ("kernel_size", "stride", "padding")
    }
    bias = convolution.bias is not None
    fresh = nn.Conv2d(channels, convolution.out_channels, **shape, bias=bias)
    nn.init.kaiming_normal_(fresh.weight, mode="fan_out", nonlinearity="relu")
    if fresh.bias is not None:
        nn.init.zeros_(fresh.bias)
    return fresh
