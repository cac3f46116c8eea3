"""Slices of rows that are added up in several processes with the bits of one process."""

from collections.abc import Sequence

import torch
from torch import Tensor

# torch's sum over rows takes four vector registers of columns at a time, of at most 64 bytes each, and adds
# up the columns left over in another order. Slices that begin at multiples of this change no column's sum.
_COLUMNS = 128


def slice_widths(size: int, processes: int) -> list[int]:
    """Widths [P] of consecutive slices of ``size`` columns, cut at multiples of ``_COLUMNS``."""
    blocks, rest = divmod(size, _COLUMNS)
    each = -(-blocks // processes)
    widths = [_COLUMNS * max(0, min(each, blocks - process * each)) for process in range(processes)]
    widths[max(0, -(-blocks // each) - 1) if blocks else 0] += rest
    return widths


def stacked(pieces: Sequence[Tensor], num_rows: int, width: int) -> Tensor:
    """Rows [n, width]; a single column with a stride, since torch adds up one without in another order."""
    rows = torch.cat(list(pieces)).view(num_rows, width)
    return rows if width > 1 else torch.cat([rows, rows], 1)[:, :width]
