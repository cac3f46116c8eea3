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
        """Maps [B, C, H, W] to the same shape and dtype; ``generator`` is on the CPU."""
        count = len(images)
        if self.padding:
            offsets = torch.randint(2 * self.padding + 1, (2, count), generator=generator)
            offsets = offsets.to(images.device, non_blocking=True)  # does not wait for the GPU
            images = _crop(F.pad(images, [self.padding] * 4), offsets, self.padding)
        if self.flip:
            flipped = (torch.rand(count, generator=generator) < 0.5).to(images.device, non_blocking=True)
            images = torch.where(flipped[:, None, None, None], images.flip(3), images)
        if self.rotation:
            degrees = (2 * torch.rand(count, generator=generator) - 1) * self.rotation
            images = _rotate(images, degrees.to(images.device, non_blocking=True))
        return images


def _crop(padded: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """The crops [B, C, H, W] of [B, C, H + 2 padding, W + 2 padding] at ``offsets`` [2, B]."""
    count, channels, height, width = padded.shape
    height, width = height - 2 * padding, width - 2 * padding
    device = padded.device
    rows = (offsets[0][:, None] + torch.arange(height, device=device))[:, None, :, None]
    columns = (offsets[1][:, None] + torch.arange(width, device=device))[:, None, None, :]
    samples = torch.arange(count, device=device)[:, None, None, None]
    return padded[samples, torch.arange(channels, device=device)[:, None, None], rows, columns]


def _rotate(images: Tensor, degrees: Tensor) -> Tensor:
    angle = degrees * (math.pi / 180)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    ratio = images.shape[2] / images.shape[3]  # grids run from -1 to 1 on both axes
    theta = torch.stack(
        [torch.stack([cos, sin * ratio, zero], 1), torch.stack([-sin / ratio, cos, zero], 1)], 1
    )
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)
