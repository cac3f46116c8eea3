"""The table of pieces in a GPU's memory, with output memory for the kernels."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.segments import Input
from compressors.kernels.cpu.table import ENTRIES, GRADIENT, SIZE, PieceTable
from compressors.kernels.gpu.blocks import ALIGNED, PARTIAL, WHOLE

PIECE = 2**12  # entries that one program works on: 16 blocks, 32 entries for each of 128 threads
TILE = 2**10  # sums that a program works on at a time
ALONE = 2**13  # sums of a part that one program adds; many programs first halve longer parts
_WORDS = 8  # masks of 32 bits for each block


class Adding:
    """Schedule of sums: the parts, and the halvings of long parts."""

    def __init__(self, parts: np.ndarray, device: torch.device) -> None:
        starts, counts = parts[:, 0], parts[:, 1] - parts[:, 0]
        self.levels: list[Tensor] = []  # [J, 3] each: the jobs of ``halve``
        while counts.max(initial=0) > ALONE:
            long = counts > ALONE
            left = -(-counts // 8)  # halved three times, rounded up each time
            tiles = -(-left // TILE) * long
            of = np.repeat(np.arange(len(parts)), tiles)
            tile = np.arange(len(of)) - np.repeat(tiles.cumsum() - tiles, tiles)
            self.levels.append(upload(np.stack([starts[of], counts[of], TILE * tile], 1), device))
            counts = np.where(long, left, counts)
        self.parts = upload(np.stack([starts, starts + counts], 1), device)  # start and end after halving


class DeviceTable:
    """A ``PieceTable`` of short pieces; constant arrays are copied to the device once."""

    def __init__(self, inputs: list[Input]) -> None:
        self.device = inputs[0].rows.device
        self.host = host = PieceTable(inputs, PIECE)
        num_pieces, num_blocks = len(host.pieces), len(host.sums)
        self.row_pieces = upload(host.row_pieces, self.device)  # [S W + 1]
        self.row_sizes = upload(host.row_sizes, self.device)  # [S W]
        # [sum of W L + 1], the first piece of each part, and the number of pieces
        self.part_edges = upload(np.append(host.part_pieces, num_pieces), self.device)
        # In one tensor, to be added together.
        self.both = torch.empty(2 * num_blocks, dtype=torch.float64, device=self.device)
        self.sums, self.sums_of_all = self.both[:num_blocks], self.both[num_blocks:]
        self.adding_both = Adding(np.concatenate([host.parts, host.parts + num_blocks]), self.device)
        self.adding = Adding(host.parts, self.device)
        self.masks = torch.empty(_WORDS * num_blocks, dtype=torch.int32, device=self.device)
        self.counts = torch.empty(num_pieces, dtype=torch.int32, device=self.device)
        self.pieces = self.rows = torch.empty(0)
        self.launches: list[tuple[Tensor, int]] = []  # pieces of each kind
        self.adds = False  # whether there are gradients to add
        self._kept: dict[str, tuple[Any, Any]] = {}
        words = -(-host.row_sizes // 32)
        self._row_words = words.cumsum() - words

    @property
    def num_rows(self) -> int:
        return len(self._row_words)

    def kept(self, name: str, value: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returned at the last call of this name, if ``value`` is the same as then."""
        known = self._kept.get(name)
        if known is None or known[0] != value:
            known = self._kept[name] = (value, make())
        return known[1]

    def fits(self, inputs: list[Input]) -> bool:
        return self.device == inputs[0].rows.device and self.host.fits(inputs)

    def point(self, inputs: list[Input]) -> None:
        """Store the addresses of these inputs' entries."""
        before = self.host.addresses
        self.host.point(inputs)
        if self.host.addresses is before:
            return
        pieces, rows = self.host.pieces, self.host.row_pieces[:-1]
        self.adds = bool(pieces[:, GRADIENT].any())
        is_whole = (pieces[:, SIZE] == PIECE) & ((pieces[:, GRADIENT] != 0) == self.adds)
        is_aligned = (pieces[:, [ENTRIES, GRADIENT]] % 16 == 0).all(1)
        kinds = np.where(is_whole, np.where(is_aligned, ALIGNED.value, WHOLE.value), PARTIAL.value)
        order = np.argsort(-kinds, kind="stable")
        self.pieces = upload(np.column_stack([pieces, np.arange(len(pieces))])[order], self.device)  # [P, 7]
        edges = np.searchsorted(-kinds[order], [-3, -2, -1, 0], side="right")
        of_kinds = zip((ALIGNED.value, WHOLE.value, PARTIAL.value), pairwise(edges.tolist()), strict=True)
        self.launches = [(self.pieces[begin:end], kind) for kind, (begin, end) in of_kinds if end > begin]
        # Per row its address, for given marks its first word in ``masks``, and the address of its gradient.
        columns = (pieces[rows, ENTRIES], self._row_words, pieces[rows, GRADIENT])
        self.rows = upload(np.stack(columns, 1), self.device)  # [S W, 3]


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """A copy on the device; the host does not wait for it."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.clone()
