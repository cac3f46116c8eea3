"""Vectors of bfloat16 values or small integers, and the device, for tests of the GPU kernels."""

import torch
from torch import Tensor

from compressors.api import Segment

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def few_digits(*shape: int, seed: int, ties: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if ties:
        return torch.randint(-2, 3, shape, generator=generator).float()
    return torch.randn(shape, generator=generator).bfloat16().float()


def segment(rows: Tensor, name: str = "a") -> Segment:
    """A segment of one layer."""
    return Segment(name, rows, ((rows.shape[1],),))
