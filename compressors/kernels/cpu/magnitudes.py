"""Compiled loop for the histogram of magnitudes, with the bits of ``compressors/parts/magnitudes.py``."""

import numpy as np
from numba import carray, njit

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import fused_multiply_add, pointer, prefetch
from compressors.kernels.cpu.table import ENTRIES, GRADIENT, SIZE
from compressors.parts.magnitudes import BINS, COUNT, DROPPED, FIRST_KEY, FULL, ROUNDED

_BLOCK, _AHEAD = 256, 1024  # entries of a block in cache; prefetch distance in entries
_SIGN, _MANTISSA, _LEADING = np.uint32(2**31 - 1), np.uint32(2**23 - 1), np.uint32(2**23)
_LAST, _FIRST_KEY, _DROPPED = np.int32(BINS - 1), np.int32(FIRST_KEY), np.uint32(DROPPED)
_HALF, _ROUNDED, _ONE = np.uint64(2 ** (ROUNDED - 1)), np.uint64(ROUNDED), np.int64(2**COUNT)
_SUM = np.int64(2**COUNT - 1)


@compiled
def flush(words, scales, counts, squares):
    """Move one worker's ``words`` [BINS] to ``counts`` and ``squares``; without a branch, for SIMD."""
    last = len(words) - 1
    infinite = squares[last]
    for i in range(len(words)):
        counts[i] += words[i] >> COUNT
        squares[i] += np.float64(words[i] & _SUM) * scales[i]
    if words[last] == 0:
        squares[last] = infinite  # 0 times infinity is NaN
    words[:] = 0


@njit(inline="always")
def find_bins(bits, keys, entries):
    """The bins of a block of fp32 ``bits`` and their words' increments; of constant length, for SIMD."""
    for i in range(_BLOCK):
        mantissa = np.uint64((bits[i] & _MANTISSA) | _LEADING)
        entries[i] = np.int64((mantissa * mantissa + _HALF) >> _ROUNDED) + _ONE
        key = np.int32((bits[i] & _SIGN) >> _DROPPED) - _FIRST_KEY
        keys[i] = min(max(key, np.int32(0)), _LAST)


@compiled
def count(pieces, row_pieces, first, last, factor, words, filled, scales, counts, squares):
    """Add every entry of p = e + factor g of the workers ``first`` to ``last`` to their histograms."""
    workers = len(words)
    x = np.zeros(_BLOCK, np.float32)
    bits = x.view(np.uint32)
    keys, entries = np.empty(_BLOCK, np.uint16), np.empty(_BLOCK, np.int64)
    for worker in range(first, last):
        own = words[worker]
        for row in range(worker, len(row_pieces) - 1, workers):
            for piece in range(row_pieces[row], row_pieces[row + 1]):
                size = pieces[piece, SIZE]
                if filled[worker] + size > FULL:
                    flush(own, scales, counts[worker], squares[worker])
                    filled[worker] = 0
                filled[worker] += size
                p = carray(pointer(pieces[piece, ENTRIES], factor), (size,))
                g = carray(pointer(pieces[piece, GRADIENT], factor), (size,))
                adds = pieces[piece, GRADIENT] != 0
                whole = size // _BLOCK * _BLOCK
                for start in range(0, whole, _BLOCK):
                    if start + _AHEAD < size:
                        prefetch(p, start + _AHEAD, _BLOCK)
                        prefetch(g, start + _AHEAD, _BLOCK)
                    if adds:
                        for i in range(_BLOCK):
                            x[i] = fused_multiply_add(g[start + i], factor, p[start + i])
                    else:
                        for i in range(_BLOCK):
                            x[i] = p[start + i]
                    find_bins(bits, keys, entries)
                    for i in range(_BLOCK):
                        own[keys[i]] += entries[i]
                for i in range(whole, size):
                    x[i - whole] = fused_multiply_add(g[i], factor, p[i]) if adds else p[i]
                find_bins(bits, keys, entries)
                for i in range(size - whole):
                    own[keys[i]] += entries[i]
