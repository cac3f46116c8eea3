"""Compiled loops for surveys, with the bits of ``compressors/core/surveys.py``."""

import numpy as np
from numba import carray, njit, uint64

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import at_least, fused_multiply_add, lowest, num_set, pointer
from compressors.kernels.cpu.table import FIRST_BLOCK, GRADIENT, REST, ROW, SIZE

_BLOCK, _LANES, _MASKS = 256, 32, 4  # entries of a block, its partial sums, its masks of 64 bits


@njit(inline="always")
def add_halves(lanes):
    """The sum of a block's partial sums, which are consumed."""
    for half in (16, 8, 4, 2, 1):
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
    return lanes[0]


@njit(inline="always")
def add_block(x, level, totals, excesses, squares):
    """Partial sums of a block's entries, of the excesses over ``level``, and of the excesses' squares."""
    for lane in range(_LANES):
        totals[lane] = excesses[lane] = squares[lane] = 0.0
    for line in range(_BLOCK // _LANES):
        for lane in range(_LANES):
            entry = np.float64(x[line * _LANES + lane])
            excess = abs(entry) - level
            excess = 0.0 if excess < 0.0 else excess
            totals[lane] += entry
            excesses[lane] += excess
            squares[lane] += excess * excess


@njit(inline="always")
def inside(mask, count):
    """The mask without bits from ``count`` on."""
    if count <= 0:
        return uint64(0)
    return mask & ((uint64(1) << uint64(count)) - uint64(1)) if count < 64 else mask


@compiled
def survey(pieces, first, last, factor, levels, floors, sums, counts, masks, kept):
    """Per block the sums of a ``Survey`` of p = e + factor g, and masks of |p| >= floor.

    ``counts`` and ``kept`` [P] are the numbers of entries of at least the level and the floor. The loop has
    no ``fetch``, because with it the pass takes 1.7 times as long.
    """
    x = np.zeros(_BLOCK, levels.dtype)
    totals, excesses, squares = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    for piece in range(first, last):
        size, to, row = pieces[piece, SIZE], pieces[piece, FIRST_BLOCK], pieces[piece, ROW]
        level, floor = levels[row], floors[row]
        p = carray(pointer(pieces[piece, REST], level), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], level), (size,))
        adds = pieces[piece, GRADIENT] != 0
        count = marked = 0
        for block in range((size + _BLOCK - 1) // _BLOCK):  # positions that are never negative, for SIMD
            start = block * _BLOCK
            length = min(_BLOCK, size - start)
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
            add_block(x, np.float64(level), totals, excesses, squares)
            sums[0, to], sums[1, to] = add_halves(totals), add_halves(excesses)
            sums[2, to] = add_halves(squares)
            for quarter in range(_MASKS):
                left = length - 64 * quarter
                mask = inside(at_least(x, 64 * quarter, floor), left)
                masks[_MASKS * to + quarter] = mask
                marked += num_set(mask)
                if level > 0:
                    count += num_set(inside(at_least(x, 64 * quarter, level), left))
            to += 1
        counts[piece], kept[piece] = count if level > 0 else size, marked


@compiled
def gather(pieces, first, last, factor, offsets, masks, magnitudes):
    """The magnitudes of marked entries, each piece's from its offset on."""
    for piece in range(first, last):
        size, to = pieces[piece, SIZE], offsets[piece]
        p = carray(pointer(pieces[piece, REST], factor), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], factor), (size,))
        adds = pieces[piece, GRADIENT] != 0
        begin = _MASKS * pieces[piece, FIRST_BLOCK]
        for position in range((size + 63) // 64):
            mask = masks[begin + position]
            while mask != uint64(0):
                i = 64 * position + lowest(mask)
                mask &= mask - uint64(1)
                magnitudes[to] = abs(fused_multiply_add(g[i], factor, p[i]) if adds else p[i])
                to += 1
