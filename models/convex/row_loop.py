"""Gradients of convex problems row by row: each row is read from memory once, for product and sum.

A worker's rows are added in their order. On one machine the bits depend only on these rows; with a BLAS they
would also depend on the other workers of the process and on memory alignment. The compiled code is cached
next to this file or, if that is not writable, in the user's cache folder. Without a cache each process
compiles it in a second or two.
"""

from collections.abc import Callable

import numpy as np
from numba import njit

# "total_error._lab." where the packages have private names, else empty
_PREFIX = __name__.removesuffix("models.convex.row_loop")


def _compiled(function: Callable) -> Callable:
    function.__qualname__ = _PREFIX + function.__qualname__  # in the cache's file name
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


@njit(fastmath={"reassoc", "contract"})  # the compiler's summation order depends only on the length
def _dot(row, x):
    total = 0.0
    for i in range(len(x)):
        total += row[i] * x[i]
    return total


@njit
def _add_four(rows, indices, scales, out):
    """Add four rows in order, with one pass over ``out`` [D]."""
    a, b, c, d = rows[indices[0]], rows[indices[1]], rows[indices[2]], rows[indices[3]]
    of_a, of_b, of_c, of_d = scales[0], scales[1], scales[2], scales[3]
    for i in range(len(out)):
        out[i] = (((out[i] + of_a * a[i]) + of_b * b[i]) + of_c * c[i]) + of_d * d[i]


@_compiled
def products(rows, indices, x, out):
    """Write c_j.x of the ``rows`` [m, D] at ``indices`` [R] into ``out`` [R]."""
    for place in range(len(indices)):
        out[place] = _dot(rows[indices[place]], x)


@_compiled
def gradients(rows, indices, lengths, weights, x, l2, found, out, is_squared, targets):
    """Write each worker's sum of weight loss'(c_j.x) c_j over its rows, plus l2 x, into ``out`` [W, D].

    loss' is the sigmoid or, if it ``is_squared``, c_j.x - ``targets`` [R]. The R ``indices`` are ordered by
    worker, ``lengths`` [W] of them each; c_j.x is written to ``found`` [R].
    """
    scales = np.empty(len(indices))
    begin = 0
    for worker in range(len(lengths)):
        own = out[worker]
        for i in range(len(x)):
            own[i] = l2 * x[i]
        end = begin + lengths[worker]
        whole = end - lengths[worker] % 4
        for first in range(begin, end, 4):  # while the rows are in the L1 cache
            for place in range(first, min(first + 4, end)):
                found[place] = _dot(rows[indices[place]], x)
                if is_squared:
                    scales[place] = weights[place] * (found[place] - targets[place])
                else:
                    scales[place] = weights[place] / (1 + np.exp(-found[place]))
            if first < whole:
                _add_four(rows, indices[first : first + 4], scales[first : first + 4], own)
            else:
                for place in range(first, end):
                    row, scale = rows[indices[place]], scales[place]
                    for i in range(len(x)):
                        own[i] += scale * row[i]
        begin = end
