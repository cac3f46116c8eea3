"""Blocks of p = e + factor g that compiled loops read without computing p in place."""

from numba import njit, uint64

from compressors.kernels.cpu.machine import fused_multiply_add

BLOCK, LANES, MASKS = 256, 32, 4  # entries of a block, its partial sums, its masks of 64 bits


@njit(inline="always")
def read(x, p, g, factor, adds, start, length):
    """A block of p, padded with zeros, in ``x``."""
    if length == BLOCK:
        if adds:
            for i in range(BLOCK):
                x[i] = fused_multiply_add(g[start + i], factor, p[start + i])
        else:
            for i in range(BLOCK):
                x[i] = p[start + i]
    else:
        x[length:] = 0
        for i in range(length):
            x[i] = fused_multiply_add(g[start + i], factor, p[start + i]) if adds else p[start + i]


@njit(inline="always")
def first_bits(mask, count):
    """The first ``count`` bits of the mask, the others 0."""
    if count <= 0:
        return uint64(0)
    return mask & ((uint64(1) << uint64(count)) - uint64(1)) if count < 64 else mask
