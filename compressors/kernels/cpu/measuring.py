"""Compiled loops for diagnostics, with the same bits as torch's operators."""

import numpy as np
from numba import carray

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import pointer

_IN_CACHE = 2048  # entries


@compiled
def add_wide(entries, is_first, total):
    """Add ``entries`` [d], as float64, to ``total`` [d]; with ``is_first`` overwrite it."""
    if is_first:
        for i in range(len(total)):
            total[i] = entries[i]
    else:
        for i in range(len(total)):
            total[i] += entries[i]


@compiled
def add_wide_rows(table, like, total):
    """Add, per row of ``table``, W rows of d entries of ``like``'s dtype to the next d of ``total``.

    ``table`` has the address of the first row, the stride in bytes, W and d. All W rows are added to a part
    of ``total`` while it is in cache.
    """
    begin = 0
    for part in range(len(table)):
        address, stride, num_rows, size = table[part]
        for start in range(0, size, _IN_CACHE):
            stop = min(start + _IN_CACHE, size)
            out = total[begin + start : begin + stop]
            for row in range(num_rows):
                entries = carray(pointer(address + row * stride, like), (size,))[start:stop]
                for i in range(len(out)):
                    out[i] += entries[i]
        begin += size


@compiled
def count_ages(steps, sent_at, entries, counts, squares):
    """Count entries, and add up their squares, per number of steps since ``sent_at`` [d]."""
    for i in range(len(sent_at)):
        age = steps - sent_at[i]
        wide = np.float64(entries[i])
        counts[age] += 1
        squares[age] += wide * wide
