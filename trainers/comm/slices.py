"""Slices of rows that are added up in several processes with the bits of one process."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

# torch's sum over rows takes four vector registers of columns at a time, of at most 64 bytes each, and adds
# up the columns left over in another order. Slices that begin at multiples of this change no column's sum.
_COLUMNS = 128
_BLOCK = (
    2**14
)  # columns that stay in a core's cache from when rows are put together to when they are added up
_LARGEST = 2**19  # columns: small enough for a slice to be added up while others are on their way


class Slice:
    """Columns ``start`` to ``stop`` of segments that lie one after the other.

    Each of the ``blocks`` (start, stop) that they are added up in is of one segment.
    """

    def __init__(self, start: int, stop: int, edges: Sequence[int]) -> None:
        self.start, self.stop = start, stop
        inner = edges[bisect_right(edges, start) : bisect_right(edges, stop - 1)]
        self.blocks = [
            (a, min(a + _BLOCK, last))
            for first, last in pairwise([start, *inner, stop])
            for a in range(first, last, _BLOCK)
        ]

    def __len__(self) -> int:
        return self.stop - self.start


def slices(sizes: Sequence[int], processes: int) -> list[list[Slice]]:
    """Rounds [R] of a slice for each process [P], which together are all columns of segments of ``sizes``.

    Within a segment they begin at multiples of ``_COLUMNS``.
    """
    edges = [0, *accumulate(sizes)]
    total = edges[-1]
    count = processes * max(1, -(-total // (processes * _LARGEST)))
    cuts = [_allowed(total * number // count, edges) for number in range(count)] + [total]
    all_slices = [Slice(a, b, edges) for a, b in pairwise(cuts)]
    return [all_slices[first : first + processes] for first in range(0, count, processes)]


def _allowed(column: int, edges: Sequence[int]) -> int:
    """The last column up to ``column`` at which a slice may begin."""
    first = edges[bisect_right(edges, column) - 1]
    return first + (column - first) // _COLUMNS * _COLUMNS


def strided(rows: Tensor) -> Tensor:
    """Rows [n, k]; a single column with a stride, since torch adds up one without in another order."""
    return rows if rows.shape[1] > 1 or rows.stride(0) > 1 else torch.cat([rows, rows], 1)[:, :1]


def side_by_side(rows: list[Tensor]) -> Tensor:
    """Rows [W, k] of every segment as one tensor; where one worker's lie so already, their own memory."""
    starts = [tensor.data_ptr() for tensor in rows]
    ends = [start + tensor.nbytes for start, tensor in zip(starts, rows, strict=True)]
    is_one = len(rows[0]) == 1 and all(
        tensor.is_contiguous() and tensor.dtype == rows[0].dtype for tensor in rows
    )
    if (
        not is_one
        or starts[1:] != ends[:-1]
        or len({tensor.untyped_storage().data_ptr() for tensor in rows}) > 1
    ):
        return torch.cat(rows, 1)
    return rows[0].as_strided((1, sum(tensor.shape[1] for tensor in rows)), (1, 1))
