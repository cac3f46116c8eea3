"""Initial thresholds for Top-k, from a sample of the magnitudes or from all magnitudes of a small segment."""

import numpy as np
from numba import carray, uint64

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import fused_multiply_add, pointer
from compressors.kernels.cpu.table import BASE, ENTRIES, GRADIENT, SIZE

_STRIDE, _SMALL = 127, 2**14  # a guess reads every 127th entry, or all entries of a small segment
_ENOUGH = 2**11  # sufficient number of sampled entries above a guess; the stride is larger if more are wanted


@compiled
def largest_key(keys, size, count, histogram):
    """The ``count``-th largest of ``keys[:size]`` (consumed), and the number of its ties among the
    largest."""
    if count == 1:
        best = keys[0]
        for i in range(size):
            best = max(best, keys[i])
        return best, count
    shift = uint64(8 * keys.itemsize)
    while size > 1 and shift > uint64(0):
        shift -= uint64(8)
        histogram[:] = 0
        for i in range(size):
            histogram[(uint64(keys[i]) >> shift) & uint64(255)] += 1
        digit = 255
        while histogram[digit] < count:
            count -= histogram[digit]
            digit -= 1
        kept = 0
        for i in range(size):
            key = keys[i]
            keys[kept] = key
            kept += (uint64(key) >> shift) & uint64(255) == uint64(digit)
        size = kept
    return keys[0], count


@compiled
def guess_thresholds(pieces, row_pieces, first, last, factor, wanted, magnitude, thresholds):
    """Per row a threshold that at least ``wanted`` entries of p = e + factor g most likely reach."""
    histogram = np.empty(256, np.int64)
    for row in range(first, last):
        total = 0
        for piece in range(row_pieces[row], row_pieces[row + 1]):
            total += pieces[piece, SIZE]
        samples = total > _SMALL
        stride = _STRIDE * (1 + wanted[row] // _STRIDE // (2 * _ENOUGH) * 2)  # odd
        keys = np.empty(total // stride + 1 if samples else total, magnitude.dtype)
        entries = keys.view(thresholds.dtype)
        seen = 0
        for piece in range(row_pieces[row], row_pieces[row + 1]):
            size = pieces[piece, SIZE]
            p = carray(pointer(pieces[piece, ENTRIES], factor), (size,))
            g = carray(pointer(pieces[piece, GRADIENT], factor), (size,))
            adds = pieces[piece, GRADIENT] != 0
            if samples:
                for i in range(-pieces[piece, BASE] % stride, size, stride):
                    entries[seen] = fused_multiply_add(g[i], factor, p[i]) if adds else p[i]
                    seen += 1
                continue
            if adds:
                for i in range(size):
                    entries[seen + i] = fused_multiply_add(g[i], factor, p[i])
            else:
                for i in range(size):
                    entries[seen + i] = p[i]
            seen += size
        for i in range(seen):
            keys[i] &= magnitude[0]
        rank = wanted[row]
        if samples:  # a margin of four standard deviations: too many marks take less time than too few
            expected = rank * seen / total
            rank = min(seen, int(expected + 4 * np.sqrt(expected) + 8))
        if rank >= total:
            thresholds[row] = 0
            continue
        keys[0] = largest_key(keys, seen, rank, histogram)[0]
        thresholds[row] = entries[0]


@compiled
def thresholds_of_samples(
    pieces, row_pieces, first, last, factor, drawn, starts, ranks, smallest, magnitude, thresholds
):
    """Per row the ``ranks``-th largest magnitude of p = e + factor g at the places drawn for it, or 0 for
    rank 0.

    Without places, the sample is the row. A threshold that is not 0 is at least ``smallest``.
    """
    histogram = np.empty(256, np.int64)
    for row in range(first, last):
        if ranks[row] == 0:
            thresholds[row] = 0
            continue
        begin = row_pieces[row]  # the layers of a row are side by side
        size = 0
        for piece in range(begin, row_pieces[row + 1]):
            size += pieces[piece, SIZE]
        p = carray(pointer(pieces[begin, ENTRIES], factor), (size,))
        g = carray(pointer(pieces[begin, GRADIENT], factor), (size,))
        adds = pieces[begin, GRADIENT] != 0
        places = drawn[starts[row] : starts[row + 1]]
        seen = len(places) if len(places) else size
        keys = np.empty(seen, magnitude.dtype)
        entries = keys.view(thresholds.dtype)
        for j in range(seen):
            i = places[j] if len(places) else j
            entries[j] = fused_multiply_add(g[i], factor, p[i]) if adds else p[i]
            keys[j] &= magnitude[0]
        keys[0] = largest_key(keys, seen, ranks[row], histogram)[0]
        thresholds[row] = smallest if entries[0] < smallest else entries[0]
