"""Packing of codes of a few bits, or of three values, into bytes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad


def pack(codes: Tensor, bits: int) -> Tensor:
    """``codes`` [d] uint8 below 2^bits, packed: [ceil(d bits / 8)] uint8."""
    if bits == 1 and codes.is_cpu:  # a fifth of the time of torch's operators
        return torch.from_numpy(np.packbits(codes.numpy(), bitorder="little"))
    each = 8 // bits
    rows = pad(codes, (0, -len(codes) % each)).view(-1, each)
    packed = rows[:, 0].clone()
    for place in range(1, each):
        packed |= rows[:, place] << (bits * place)
    return packed


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The first ``count`` codes, [count] uint8."""
    if bits == 1 and packed.is_cpu:
        return torch.from_numpy(np.unpackbits(packed.numpy(), count=count, bitorder="little"))
    shifts = torch.arange(0, 8, bits, device=packed.device, dtype=torch.uint8)
    return ((packed.unsqueeze(1) >> shifts) & (2**bits - 1)).flatten()[:count]


def widths_of(bits: int) -> list[int]:
    """Parts of a code of ``bits`` bits that divide a byte, from the lowest bits on: 5 is 4 + 1."""
    return [8] * (bits // 8) + [width for width in (4, 2, 1) if bits & width]


def split_bits(codes: Tensor, bits: int) -> list[Tensor]:
    """``codes`` [d] below 2^bits as packed parts of ``widths_of(bits)`` bits."""
    packed = []
    for width in widths_of(bits):
        packed.append(pack((codes & (2**width - 1)).to(torch.uint8), width))
        codes = codes >> width
    return packed


def join_bits(packed: Sequence[Tensor], bits: int, count: int) -> Tensor:
    """The first ``count`` codes of parts from ``split_bits``, [count] int16; ``bits`` <= 15."""
    codes = torch.zeros(count, dtype=torch.int16, device=packed[0].device)
    shift = 0
    for part, width in zip(packed, widths_of(bits), strict=True):
        codes |= unpack(part, width, count).to(torch.int16) << shift
        shift += width
    return codes


def pack_ternary(codes: Tensor) -> Tensor:
    """``codes`` [d] uint8 below 3, five in a byte, because 3^5 = 243 <= 256: [ceil(d / 5)] uint8."""
    rows = pad(codes, (0, -len(codes) % 5)).view(-1, 5)
    packed = rows[:, 4].clone()
    for place in (3, 2, 1, 0):
        packed *= 3
        packed += rows[:, place]
    return packed


def unpack_ternary(packed: Tensor, count: int) -> Tensor:
    """The first ``count`` codes, [count] uint8."""
    digits = [packed.div(3**place, rounding_mode="floor") % 3 for place in range(5)]
    return torch.stack(digits, 1).flatten()[:count]
