"""Lengths that QSGD's messages would have in Elias' recursive code.

Elias, 1975, https://doi.org/10.1109/TIT.1975.1055349 (the omega code); Alistarh et al., 2017,
https://arxiv.org/abs/1610.02132, sections 3.1 and A. The code of k >= 1 ends with one bit. Before it are
the binary digits of k, before these the digits of their number minus one, and so on down to 1.
"""

import torch
from torch import Tensor

NORM = 32  # bits of a bucket's norm


def omega_bits(numbers: Tensor) -> Tensor:
    """The length in bits of the omega code of each of ``numbers``, int64 >= 1 and below 2^53."""
    rest = numbers.clone()
    bits = torch.ones_like(rest)
    while (rest > 1).any():
        digits = torch.where(rest > 1, torch.frexp(rest.double()).exponent.long(), 0)
        bits += digits
        rest = (digits - 1).clamp(min=1)
    return bits


def sparse_bits(levels: Tensor) -> int:
    """Bits of one bucket by the paper's ``Code_s``: norm, then gap, sign and level of every level above 0."""
    where = levels.nonzero().squeeze(1)
    gaps = torch.diff(where, prepend=where.new_full((1,), -1))
    return NORM + int((omega_bits(gaps) + 1 + omega_bits(levels[where])).sum())


def dense_bits(levels: Tensor) -> int:
    """Bits of one bucket by ``Code'_s``: norm, then per entry its level plus 1, and a sign if level > 0."""
    return NORM + int(omega_bits(levels + 1).sum()) + int(levels.count_nonzero())
