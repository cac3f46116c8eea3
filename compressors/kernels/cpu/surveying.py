"""Compiled loops for surveys, with the bits of ``compressors/parts/surveys.py``.

Inlined functions of searching.py are repeated here: see native.py on functions of other files.
"""

from itertools import pairwise

import numpy as np
from numba import carray, njit, uint64

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import at_least, fused_multiply_add, lowest_bit, num_set_bits, pointer
from compressors.kernels.cpu.table import ENTRIES, FIRST_BLOCK, GRADIENT, ROW, SIZE

_BLOCK, _LANES, _MASKS = 256, 32, 4  # entries of a block, its partial sums, its masks of 64 bits
_STRIDE = 61  # a sample of a tail reads every 61st magnitude


@njit(inline="always")
def add_halves(lanes):
    """The sum of a block's partial sums, which are consumed."""
    for half in (16, 8, 4, 2, 1):
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
    return lanes[0]


@njit(inline="always")
def add_excesses(x, level, excesses):
    """Partial sums of a block's excesses over ``level``."""
    for lane in range(_LANES):
        excesses[lane] = 0.0
    for line in range(_BLOCK // _LANES):
        for lane in range(_LANES):
            excess = abs(np.float64(x[line * _LANES + lane])) - level
            excesses[lane] += 0.0 if excess < 0.0 else excess


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
def first_bits(mask, count):
    """The first ``count`` bits of the mask, the others 0."""
    if count <= 0:
        return uint64(0)
    return mask & ((uint64(1) << uint64(count)) - uint64(1)) if count < 64 else mask


@compiled
def survey(pieces, first, last, factor, levels, floors, sums, counts, kept, offsets, tail):
    """Per block the sums of a ``Survey`` of p = e + factor g, and the magnitudes of at least the floor.

    ``sums`` [1 or 3, B] has excesses, or excesses, totals and squares. ``counts`` and ``kept`` [P] are the
    numbers of entries of at least the level and the floor. The magnitudes of a piece go to ``tail`` from
    ``offsets`` [P] on, one piece's after another's, beginning with ``offsets[first]``. The loop has no
    ``prefetch``, because with it the pass takes 1.7 times as long.
    """
    x = np.zeros(_BLOCK, levels.dtype)
    totals, excesses, squares = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    at = offsets[first]
    for piece in range(first, last):
        size, to, row = pieces[piece, SIZE], pieces[piece, FIRST_BLOCK], pieces[piece, ROW]
        level, floor = levels[row], floors[row]
        p = carray(pointer(pieces[piece, ENTRIES], level), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], level), (size,))
        adds = pieces[piece, GRADIENT] != 0
        count, begin = 0, at
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
            if len(sums) == 1:
                add_excesses(x, np.float64(level), excesses)
            else:
                add_block(x, np.float64(level), totals, excesses, squares)
                sums[1, to], sums[2, to] = add_halves(totals), add_halves(squares)
            sums[0, to] = add_halves(excesses)
            for quarter in range(_MASKS):
                left = length - 64 * quarter
                mask = first_bits(at_least(x, 64 * quarter, floor), left)
                while mask != uint64(0):
                    tail[at] = abs(x[64 * quarter + lowest_bit(mask)])
                    mask &= mask - uint64(1)
                    at += 1
                if level > 0:
                    count += num_set_bits(first_bits(at_least(x, 64 * quarter, level), left))
            to += 1
        counts[piece] = count if level > 0 else size
        offsets[piece], kept[piece] = begin, at - begin


def tails_of(tail, offsets, kept, row_pieces):
    """Per row its magnitudes in ``tail``: a view, or a copy if its pieces were given to several threads."""
    ends = offsets[:-1] + kept
    found = []
    for first, last in pairwise(row_pieces.tolist()):
        if (offsets[first + 1 : last] == ends[first : last - 1]).all():
            found.append(tail[offsets[first] : ends[last - 1]])
        else:
            found.append(np.concatenate([tail[offsets[i] : ends[i]] for i in range(first, last)]))
    return found


@njit(inline="always")
def add_tail(x, start, level, with_squares, excesses, squares):
    """Add a block's excesses over ``level`` and, ``with_squares``, their squares to the partial sums."""
    if with_squares:
        for line in range(_BLOCK // _LANES):
            for lane in range(_LANES):
                excess = np.float64(x[start + line * _LANES + lane]) - level
                excess = 0.0 if excess < 0.0 else excess
                excesses[lane] += excess
                squares[lane] += excess * excess
    else:
        for line in range(_BLOCK // _LANES):
            for lane in range(_LANES):
                excess = np.float64(x[start + line * _LANES + lane]) - level
                excesses[lane] += 0.0 if excess < 0.0 else excess


@compiled
def survey_tail(tail, level, with_squares):
    """The number of magnitudes of at least ``level``, and sums of their excesses and of the squares of these.

    If, by a sample, fewer than half of ``tail`` reach the level, they are moved to its front. Returns their
    number, the length in use and both sums; that of squares is NaN without ``with_squares``.
    """
    excesses, squares = np.zeros(_LANES), np.zeros(_LANES)
    count = used = sampled = 0
    for i in range(0, len(tail), _STRIDE):
        sampled += not tail[i] < level
    moves = 2 * _STRIDE * sampled < len(tail)
    wide, whole = np.float64(level), len(tail) // _BLOCK
    for block in range(whole):
        start = block * _BLOCK
        add_tail(tail, start, wide, with_squares, excesses, squares)
        for quarter in range(_MASKS):
            mask = at_least(tail, start + 64 * quarter, level)
            count += num_set_bits(mask)
            while moves and mask != uint64(0):
                tail[used] = tail[start + 64 * quarter + lowest_bit(mask)]
                mask &= mask - uint64(1)
                used += 1
    x = np.zeros(_BLOCK, tail.dtype)
    x[: len(tail) - whole * _BLOCK] = tail[whole * _BLOCK :]
    add_tail(x, 0, wide, with_squares, excesses, squares)
    for i in range(len(tail) - whole * _BLOCK):
        if not x[i] < level:
            count += 1
            if moves:
                tail[used] = x[i]
                used += 1
    of_squares = add_halves(squares) if with_squares else np.nan
    return count, used if moves else len(tail), add_halves(excesses), of_squares
