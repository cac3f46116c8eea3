"""Compiled loops of bins, with the bits of ``compressors/parts/bins.py``."""

import numpy as np

from compressors.kernels.cpu.compiling import compiled

_LANES, _MAGNITUDE, _NOTHING = 16, np.int32(0x7FFFFFFF), np.float32(0)


@compiled
def largest_of_bins(p, bin_size, largest):
    """The largest magnitude of every bin of ``p`` [d] float32; NaN counts as larger than any number."""
    bits, tops, lanes = p.view(np.int32), largest.view(np.int32), np.empty(_LANES, np.int32)
    for number in range(len(largest)):
        own = bits[number * bin_size : min(number * bin_size + bin_size, len(p))]
        lines = len(own) // _LANES
        lanes[:] = 0
        for line in range(lines):  # lines of constant length, for SIMD
            for lane in range(_LANES):
                lanes[lane] = max(lanes[lane], own[line * _LANES + lane] & _MAGNITUDE)
        for half in (8, 4, 2, 1):
            for lane in range(half):
                lanes[lane] = max(lanes[lane], lanes[lane + half])
        top = lanes[0]
        for i in range(lines * _LANES, len(own)):
            top = max(top, own[i] & _MAGNITUDE)
        tops[number] = top


@compiled
def encode(p, g, gradient_factor, bin_size, largest, magnitude, counts, codes):
    """Write the codes of the entries sent, and subtract the values sent from ``p``; returns their number.

    An entry is sent if |p + ``gradient_factor`` g| is at least its bin's ``largest`` |p|. ``codes`` has room
    for d entries. ``g`` may be ``p``, so p is written after g was read.
    """
    own, sent, to = np.empty(bin_size, codes.dtype), np.empty(bin_size, np.uint8), 0
    for number in range(len(largest)):
        start, limit, before = number * bin_size, largest[number], to
        size = min(bin_size, len(p) - start)
        x, gradient = p[start : start + size], g[start : start + size]
        for i in range(size):
            moved = x[i] + gradient[i] * gradient_factor
            sent[i] = (abs(moved) >= limit) & (x[i] != _NOTHING)
            own[i] = 2 * i + (x[i] < _NOTHING)
        for i in range(size):
            value = -magnitude if x[i] < _NOTHING else magnitude
            x[i] -= value if sent[i] else _NOTHING
        for i in range(size):  # without a branch: the codes of other entries are overwritten
            codes[to] = own[i]
            to += sent[i]
        counts[number] = to - before
    return to


@compiled
def add(magnitude, counts, codes, bin_size, total):
    """Add the entries of a message to ``total`` [d]."""
    seen = 0
    for number in range(len(counts)):
        start = number * bin_size
        for i in range(seen, seen + counts[number]):
            total[start + (codes[i] >> 1)] += -magnitude if codes[i] & 1 else magnitude
        seen += counts[number]
