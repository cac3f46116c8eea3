"""Packing of codes of a few bits into bytes."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def pack(codes: Tensor, bits: int) -> Tensor:
    """``codes`` [d] uint8 below 2^bits, packed: [ceil(d bits / 8)] uint8."""
    each = 8 // bits
    rows = pad(codes, (0, -len(codes) % each)).view(-1, each)
    packed = rows[:, 0].clone()
    for place in range(1, each):
        packed |= rows[:, place] << (bits * place)
    return packed


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The first ``count`` codes, [count] uint8."""
    shifts = torch.arange(0, 8, bits, device=packed.device, dtype=torch.uint8)
    return ((packed.unsqueeze(1) >> shifts) & (2**bits - 1)).flatten()[:count]
