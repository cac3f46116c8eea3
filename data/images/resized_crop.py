"""Random resized crop of an image (Szegedy et al., 2014, https://arxiv.org/abs/1409.4842)."""

import math

import torch
from torch import Tensor

AREA = (0.08, 1.0)  # fraction of the image's area
RATIO = (3 / 4, 4 / 3)  # width over height
TRIES = 10  # if none fits, the crop is the largest centred one of an allowed ratio


def draw_crops(count: int, generator: torch.Generator) -> Tensor:
    """[count, TRIES, 4] in [0, 1): random numbers for ``crop_box``, drawn before image sizes are known."""
    return torch.rand(count, TRIES, 4, generator=generator)


def crop_box(draws: Tensor, width: int, height: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of a part of an image; ``draws`` [TRIES, 4].

    The area is uniform and the ratio log-uniform; the first try that fits is taken, as in
    torchvision's RandomResizedCrop.
    """
    low, high = (math.log(ratio) for ratio in RATIO)
    for area, ratio, vertical, horizontal in draws.tolist():
        pixels = width * height * (AREA[0] + (AREA[1] - AREA[0]) * area)
        ratio = math.exp(low + (high - low) * ratio)
        across, down = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < across <= width and 0 < down <= height:
            return int(vertical * (height - down + 1)), int(horizontal * (width - across + 1)), down, across
    ratio = min(max(width / height, RATIO[0]), RATIO[1])
    across, down = min(width, round(height * ratio)), min(height, round(width / ratio))
    return (height - down) // 2, (width - across) // 2, down, across
