"""Compiled loops over p = e + factor g without computing it in place: large entries, and squares."""

import numpy as np
from numba import carray, njit, uint64

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import (
    at_least,
    fused_multiply_add,
    lowest_bit,
    num_set_bits,
    pointer,
    prefetch,
    sum_of_squares,
)
from compressors.kernels.cpu.table import BASE, ENTRIES, FIRST_BLOCK, GRADIENT, ROW, SIZE

_BLOCK, _MASKS = 256, 4  # entries of a block, its masks of 64 bits
_AHEAD = 2048  # entries that are prefetched: two pages of fp32, where the hardware prefetcher stops


@njit(inline="always")
def read(x, p, g, factor, adds, start, length):
    """A block of p, padded with zeros, in ``x``."""
    if length == _BLOCK:
        if adds:
            for i in range(_BLOCK):
                x[i] = fused_multiply_add(g[start + i], factor, p[start + i])
        else:
            for i in range(_BLOCK):
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


@compiled
def search(pieces, first, last, factor, thresholds, masks, counts):
    """Masks of |p| >= threshold, and their ``counts`` [P]."""
    x = np.zeros(_BLOCK, thresholds.dtype)
    for piece in range(first, last):
        size, to = pieces[piece, SIZE], _MASKS * pieces[piece, FIRST_BLOCK]
        threshold = thresholds[pieces[piece, ROW]]
        p = carray(pointer(pieces[piece, ENTRIES], threshold), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], threshold), (size,))
        adds = pieces[piece, GRADIENT] != 0
        marked = 0
        for block in range((size + _BLOCK - 1) // _BLOCK):  # positions that are never negative, for SIMD
            start = block * _BLOCK
            length = min(_BLOCK, size - start)
            read(x, p, g, factor, adds, start, length)
            for quarter in range(_MASKS):
                mask = first_bits(at_least(x, 64 * quarter, threshold), length - 64 * quarter)
                masks[to + quarter] = mask
                marked += num_set_bits(mask)
            to += _MASKS
        counts[piece] = marked


@compiled
def positions(pieces, first, last, offsets, masks, found):
    """The positions of marked entries in their rows, each piece's from its offset on."""
    for piece in range(first, last):
        to, begin = offsets[piece], _MASKS * pieces[piece, FIRST_BLOCK]
        for group in range((pieces[piece, SIZE] + 63) // 64):
            mask = masks[begin + group]
            while mask != uint64(0):
                found[to] = pieces[piece, BASE] + 64 * group + lowest_bit(mask)
                mask &= mask - uint64(1)
                to += 1


@compiled
def square(pieces, first, last, factor, x, sums):
    """Sums of squares of p, per block, in the order of ``squared_norm``; ``x`` [256] is of p's dtype."""
    for piece in range(first, last):
        size, to = pieces[piece, SIZE], pieces[piece, FIRST_BLOCK]
        p = carray(pointer(pieces[piece, ENTRIES], factor), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], factor), (size,))
        adds = pieces[piece, GRADIENT] != 0
        for block in range((size + _BLOCK - 1) // _BLOCK):
            start = block * _BLOCK
            length = min(_BLOCK, size - start)
            if adds or length < _BLOCK:
                read(x, p, g, factor, adds, start, length)
                sums[to + block] = sum_of_squares(x, 0)
            else:
                if start + _AHEAD < size:
                    prefetch(p, start + _AHEAD, _BLOCK)
                sums[to + block] = sum_of_squares(p, start)
