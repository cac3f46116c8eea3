"""The second pass of selections by a threshold, over the marked entries."""

from numba import carray, uint64

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import lowest_bit, pointer
from compressors.kernels.cpu.native import BASE, ENTRIES, FIRST_BLOCK, MASKS, ROW, SIZE


@compiled
def pack(pieces, first, last, offsets, thresholds, masks, values, indices):
    """Move marked entries to ``values`` and ``indices``, each piece from its offset on, and set them to
    zero."""
    for piece in range(first, last):
        size, to = pieces[piece, SIZE], offsets[piece]
        p = carray(pointer(pieces[piece, ENTRIES], thresholds[0]), (size,))
        begin = MASKS * pieces[piece, FIRST_BLOCK]
        for position in range((size + 63) // 64):
            mask = masks[begin + position]
            while mask != uint64(0):
                i = 64 * position + lowest_bit(mask)
                mask &= mask - uint64(1)
                values[to] = p[i]
                indices[to] = pieces[piece, BASE] + i
                p[i] = 0
                to += 1


@compiled
def pack_signs(pieces, first, last, offsets, thresholds, masks, words):
    """Write 2 index + (x < 0) of marked entries to ``words``, and subtract sign(x) times the threshold."""
    for piece in range(first, last):
        size, to, base = pieces[piece, SIZE], offsets[piece], pieces[piece, BASE]
        threshold = thresholds[pieces[piece, ROW]]
        p = carray(pointer(pieces[piece, ENTRIES], threshold), (size,))
        begin = MASKS * pieces[piece, FIRST_BLOCK]
        for position in range((size + 63) // 64):
            mask = masks[begin + position]
            while mask != uint64(0):
                i = 64 * position + lowest_bit(mask)
                mask &= mask - uint64(1)
                negative = p[i] < 0
                words[to] = 2 * (base + i) + negative
                p[i] -= -threshold if negative else threshold
                to += 1
