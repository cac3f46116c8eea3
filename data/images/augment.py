"""Augmentation of image batches on their device, with one worker's random generator."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random crop after zero padding, horizontal flip with probability 1/2, rotation.

    ``padding`` is in pixels on every side; ``rotation`` is the largest angle in degrees, in both
    directions. The rotation takes the nearest pixel and fills with zeros, like torchvision's
    RandomRotation.
    """

    padding: int = 0
    flip: bool = False
    rotation: float = 0.0

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Maps [B, C, H, W], uint8 or float32, to the same shape and dtype; ``generator`` is on the CPU."""
        count = len(images)
        if self.padding:
            offsets = torch.randint(2 * self.padding + 1, (2, count), generator=generator)
            offsets = offsets.to(images.device, non_blocking=True)  # does not wait for the GPU
            images = _crop(F.pad(images, [self.padding] * 4), offsets, self.padding)
        if self.flip:
            chosen = torch.arange(count) + count * (torch.rand(count, generator=generator) < 0.5)
            both = torch.cat([images, images.flip(3)])
            images = both.index_select(0, chosen.to(images.device, non_blocking=True))
        if self.rotation:
            degrees = (2 * torch.rand(count, generator=generator) - 1) * self.rotation
            rotated = _rotate(images.float(), degrees.to(images.device, non_blocking=True))
            images = rotated.to(images.dtype)  # exact: the nearest pixels are copies
        return images


def _crop(padded: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """The crops [B, C, H, W] of [B, C, H + 2 padding, W + 2 padding] at ``offsets`` [2, B]."""
    count, channels, height, width = padded.shape
    size = (count, channels, height - 2 * padding, width - 2 * padding)
    # A row of a crop is a window of the padded pixels, copied as a whole.
    rows = torch.arange(count * channels, device=padded.device).view(count, channels, 1) * height
    rows = rows + torch.arange(size[2], device=padded.device) + offsets[0][:, None, None]
    windows = padded.reshape(-1).unfold(0, size[3], 1)
    return windows.index_select(0, (rows * width + offsets[1][:, None, None]).flatten()).view(size)


def _rotate(images: Tensor, degrees: Tensor) -> Tensor:
    angle = degrees * (math.pi / 180)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    ratio = images.shape[2] / images.shape[3]  # grids run from -1 to 1 on both axes
    theta = torch.stack(
        [torch.stack([cos, sin * ratio, zero], 1), torch.stack([-sin / ratio, cos, zero], 1)], 1
    )
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)
