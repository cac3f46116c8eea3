"""Final sums of the compiled loops, in a fixed order."""

import numpy as np
from numba import carray

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import copy_and_sum_of_squares, pointer, sum_of_squares

_BLOCK = 1024  # entries whose sums stay in a core's first cache
_SQUARES = 256  # entries whose squares are added together


@compiled
def total_up(parts, sums, totals):
    """Per row of ``sums`` (consumed) and part, the total of blocks ``parts[:, 0]`` to ``parts[:, 1]``."""
    for row in range(len(sums)):
        for part in range(len(parts)):
            begin, count = parts[part, 0], parts[part, 1] - parts[part, 0]
            while count > 1:
                half = (count + 1) // 2
                for i in range(count - half):
                    sums[row, begin + i] += sums[row, begin + half + i]
                count = half
            totals[row, part] = sums[row, begin] if count else 0.0


@compiled
def add_rows(values, out):
    """Add the rows of ``values`` [R k] to ``out`` [k], in order."""
    for start in range(0, len(values), len(out)):
        for i in range(len(out)):
            out[i] += values[start + i]


@compiled
def mean_of_rows(rows, divisor, out):
    """The sum of the rows [k] at addresses ``rows`` [n], in order, over ``divisor``; ``out`` may be a row."""
    total = np.empty(_BLOCK, out.dtype)
    for block in range((len(out) + _BLOCK - 1) // _BLOCK):
        start = block * _BLOCK
        size = min(_BLOCK, len(out) - start)
        total[:] = 0
        for row in range(len(rows)):
            x = carray(pointer(rows[row], divisor), (len(out),))
            for i in range(size):
                total[i] += x[start + i]
        for i in range(size):
            out[start + i] = total[i] / divisor


@compiled
def add_at(values, indices, out):
    """Add ``values`` [k] to ``out`` at ``indices``."""
    for i in range(len(values)):
        out[indices[i]] += values[i]


@compiled
def mean_of(values, indices, divisor, out):
    """The sum of the sent entries, in order, over ``divisor``; ``out`` must be zero."""
    for i in range(len(values)):
        out[indices[i]] += values[i]
    if 4 * len(values) > len(out):
        for i in range(len(out)):
            out[i] /= divisor
        return
    quotients = np.empty(len(values), out.dtype)  # separate, because several workers may have sent an entry
    for i in range(len(values)):
        quotients[i] = out[indices[i]] / divisor
    for i in range(len(values)):
        out[indices[i]] = quotients[i]


@compiled
def means_of(table, divisor, index):
    """``mean_of`` for every row of ``table``: addresses of values, indices and ``out``, and their lengths.

    Values have the dtype of ``divisor``, indices the dtype of ``index``.
    """
    for row in range(len(table)):
        count, size = table[row, 3], table[row, 4]
        values = carray(pointer(table[row, 0], divisor), (count,))
        indices = carray(pointer(table[row, 1], index), (count,))
        mean_of(values, indices, divisor, carray(pointer(table[row, 2], divisor), (size,)))


@compiled
def running_total(counts, offsets):
    """Exclusive prefix sums of ``counts`` [P] into ``offsets`` [P + 1]; the last one is the total."""
    offsets[0] = 0
    for i in range(len(counts)):
        offsets[i + 1] = offsets[i] + counts[i]
    return offsets[len(counts)]


@compiled
def copy_and_square(pieces, first, last, x, sums):
    """Copy pieces [P, 4], and sum the squares of each block of 256 entries; ``x`` [256] is of their dtype.

    ``pieces`` has the addresses from and to which a piece is copied, its entries, and its first block.
    """
    for piece in range(first, last):
        size, to = pieces[piece, 2], pieces[piece, 3]
        source = carray(pointer(pieces[piece, 0], x[0]), (size,))
        target = carray(pointer(pieces[piece, 1], x[0]), (size,))
        for block in range((size + _SQUARES - 1) // _SQUARES):
            start = block * _SQUARES
            if start + _SQUARES <= size:
                sums[to + block] = copy_and_sum_of_squares(source, start, target)
            else:
                x[:] = 0
                x[: size - start] = source[start:]
                target[start:] = source[start:]
                sums[to + block] = sum_of_squares(x, 0)
