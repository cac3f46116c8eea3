"""Slices of rows, for sums in several processes with the bits of one process."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

# torch's sum over rows processes four vector registers of columns at a time, of at most 64 bytes each, and
# adds remaining columns in another order. Slices that begin at multiples of this number do not change any
# column's sum.
_COLUMNS = 128
_BLOCK = 2**14  # columns whose rows stay in a core's cache until they are added
_LARGEST = 2**19  # columns: small enough to add a slice while others are in flight


class Slice:
    """Columns ``start`` to ``stop`` of concatenated segments.

    Each of its ``blocks`` (start, stop), which are added separately, is part of one segment.
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
    """Rounds [R] of one slice per process [P], which cover all columns of segments of ``sizes``.

    Within a segment slices begin at multiples of ``_COLUMNS``.
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


def adds_in_order(num_rows: int, start: int, stop: int) -> bool:
    """Whether torch's sum over fp32 or fp64 rows of a block adds them to 0, one after another, on a CPU.

    It adds 16 rows at a time. In columns that do not fill its registers, it adds every fourth row first.
    """
    return num_rows <= 4 or (num_rows <= 16 and (stop - start) % _COLUMNS == 0)


def strided(rows: Tensor) -> Tensor:
    """Rows [n, k]; a single column gets a stride, because torch sums a contiguous one in another order."""
    return rows if rows.shape[1] > 1 or rows.stride(0) > 1 else torch.cat([rows, rows], 1)[:, :1]


def side_by_side(rows: list[Tensor]) -> Tensor:
    """Rows [W, k] of all segments as one tensor; for one worker without a copy if they are contiguous."""
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
