"""Compiled loops over p = e + factor g without computing it in place: large entries, and squares."""

import numpy as np
from numba import carray, uint64

from compressors.kernels.cpu.blocks import BLOCK, LANES, MASKS, first_bits, read
from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import at_least, lowest_bit, num_set_bits, pointer
from compressors.kernels.cpu.table import BASE, ENTRIES, FIRST_BLOCK, GRADIENT, ROW, SIZE


@compiled
def search(pieces, first, last, factor, thresholds, masks, counts):
    """Masks of |p| >= threshold, and their ``counts`` [P]."""
    x = np.zeros(BLOCK, thresholds.dtype)
    for piece in range(first, last):
        size, to = pieces[piece, SIZE], MASKS * pieces[piece, FIRST_BLOCK]
        threshold = thresholds[pieces[piece, ROW]]
        p = carray(pointer(pieces[piece, ENTRIES], threshold), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], threshold), (size,))
        adds = pieces[piece, GRADIENT] != 0
        marked = 0
        for block in range((size + BLOCK - 1) // BLOCK):  # positions that are never negative, for SIMD
            start = block * BLOCK
            length = min(BLOCK, size - start)
            read(x, p, g, factor, adds, start, length)
            for quarter in range(MASKS):
                mask = first_bits(at_least(x, 64 * quarter, threshold), length - 64 * quarter)
                masks[to + quarter] = mask
                marked += num_set_bits(mask)
            to += MASKS
        counts[piece] = marked


@compiled
def positions(pieces, first, last, offsets, masks, found):
    """The positions of marked entries in their rows, each piece's from its offset on."""
    for piece in range(first, last):
        to, begin = offsets[piece], MASKS * pieces[piece, FIRST_BLOCK]
        for group in range((pieces[piece, SIZE] + 63) // 64):
            mask = masks[begin + group]
            while mask != uint64(0):
                found[to] = pieces[piece, BASE] + 64 * group + lowest_bit(mask)
                mask &= mask - uint64(1)
                to += 1


@compiled
def square(pieces, first, last, factor, x, sums):
    """Sums of squares of p, per block, in the order of ``squared_norm``; ``x`` [256] is of p's dtype."""
    lanes = np.empty(LANES)
    for piece in range(first, last):
        size, to = pieces[piece, SIZE], pieces[piece, FIRST_BLOCK]
        p = carray(pointer(pieces[piece, ENTRIES], factor), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], factor), (size,))
        adds = pieces[piece, GRADIENT] != 0
        for block in range((size + BLOCK - 1) // BLOCK):
            start = block * BLOCK
            read(x, p, g, factor, adds, start, min(BLOCK, size - start))
            for lane in range(LANES):
                lanes[lane] = 0.0
            for line in range(BLOCK // LANES):
                for lane in range(LANES):
                    wide = np.float64(x[line * LANES + lane])
                    lanes[lane] += wide * wide
            for half in (16, 8, 4, 2, 1):
                for lane in range(half):
                    lanes[lane] += lanes[lane + half]
            sums[to] = lanes[0]
            to += 1
