"""Addresses and sizes of segments in memory, as tables for the compiled loops."""

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from compressors.core.segments import Input, Shapes

PIECE = 2**18  # entries that one thread works on at a time, a whole number of blocks
_BLOCK = 256
# Columns of the table of pieces: address of the entries (e, then p), address of the gradient or 0, number of
# entries, number of the first block, row, and position of the first entry in the row.
ENTRIES, GRADIENT, SIZE, FIRST_BLOCK, ROW, BASE = range(6)


class PieceTable:
    """Rows, pieces and parts of S segments of W workers with L layers each; addresses are updated per step.

    Row s W + w is that of worker w in segment s. Its pieces have at most ``longest`` entries, in whole
    blocks, and are in layer order. A part is one layer of one row.
    """

    def __init__(self, inputs: list[Input], longest: int = PIECE) -> None:
        self.addresses: list[tuple[int, ...]] = []
        self.num_workers = len(inputs[0].rows)
        self.shapes: list[Shapes] = [x.segment.shapes for x in inputs]
        self.edges = [x.segment.edges for x in inputs]
        self.num_layers = [len(edges) - 1 for edges in self.edges]
        pieces: list[tuple[int, ...]] = []
        row_pieces, block = [0], 0
        parts: list[tuple[int, int]] = []
        part_pieces: list[int] = []
        for number, edges in enumerate(edges.tolist() for edges in self.edges):
            for worker in range(self.num_workers):
                row = number * self.num_workers + worker
                for begin, end in pairwise(edges):
                    first_block = block
                    part_pieces.append(len(pieces))
                    for base in range(begin, end, longest) or (begin,):  # an empty layer is a piece too
                        size = min(longest, end - base)
                        pieces.append((0, 0, size, block, row, base))
                        block += -(-size // _BLOCK)
                    parts.append((first_block, block))
                row_pieces.append(len(pieces))
        self.pieces = np.array(pieces, dtype=np.int64)  # [P, 6]
        self.row_pieces = np.array(row_pieces, dtype=np.int64)  # [S W + 1]
        # [S W], entries of each row
        self.row_sizes = np.repeat([edges[-1] for edges in self.edges], self.num_workers).astype(np.int64)
        self.parts = np.array(parts, dtype=np.int64)  # [sum of W L, 2], first and last block
        self.part_pieces = np.array(part_pieces, dtype=np.int64)
        self.part_of_segment = np.cumsum([0] + [self.num_workers * n for n in self.num_layers]).tolist()
        self.squares = np.empty((2, block))  # of the remaining entries of each block, and of all its entries
        self.sums, self.sums_of_all = self.squares
        self.masks = np.empty(4 * block, dtype=np.uint64)
        self.counts = np.empty(len(pieces), dtype=np.int64)
        self._tail: np.ndarray | None = None
        self._drawn_shapes: list[tuple[int, ...]] = []
        self._draws: tuple[np.ndarray, list[np.ndarray], list[int]]
        self._per_row: tuple[list[float | tuple[float, ...]], np.ndarray] = ([], np.empty(0))

    def fits(self, inputs: list[Input]) -> bool:
        """Whether the layers of ``inputs``, with the same names and sizes, have the same boundaries."""
        return [x.segment.shapes for x in inputs] == self.shapes

    def point(self, inputs: list[Input]) -> None:
        """Store the addresses of these inputs' entries."""
        addresses = [_address(x) for x in inputs]
        if addresses == self.addresses:
            return
        self.addresses = addresses
        segment, worker = np.divmod(self.pieces[:, ROW], self.num_workers)
        rest, stride, gradient, gradient_stride = np.array(addresses, dtype=np.int64).T[:, segment]
        item = inputs[0].rows.itemsize
        self.pieces[:, ENTRIES] = rest + item * (worker * stride + self.pieces[:, BASE])
        there = gradient != 0
        offsets = item * (worker * gradient_stride + self.pieces[:, BASE])
        self.pieces[:, GRADIENT] = there * (gradient + offsets)

    def tail(self, dtype: np.dtype) -> np.ndarray:
        """Memory for one number per entry; the operating system provides only the pages that are used.

        It is reused: new memory for the tails of a survey would take a sixth of the survey's time.
        """
        if self._tail is None or self._tail.dtype != dtype:
            self._tail = np.empty(self.pieces[:, SIZE].sum(), dtype=dtype)
        return self._tail

    def draws(self, shapes: list[tuple[int, ...]]) -> tuple[np.ndarray, list[np.ndarray], list[int]]:
        """The table ``draws`` of ``native.take`` for positions of these shapes, one row or W rows.

        Returns [S W, 4], views [W] of its last column (rotations) per segment, and the number of values per
        segment. The result of the last call is cached.
        """
        if shapes != self._drawn_shapes:
            workers = np.arange(self.num_workers)
            draws = np.zeros((len(shapes), self.num_workers, 4), dtype=np.int64)
            sizes: list[int] = []
            drawn_from = 0
            for own, (rows, k) in zip(draws, shapes, strict=True):
                own[:, 0] = drawn_from + (k * workers if rows > 1 else 0)
                own[:, 1] = sum(sizes) + k * workers
                own[:, 2] = k
                drawn_from += rows * k
                sizes.append(k * self.num_workers)
            self._drawn_shapes = shapes
            self._draws = draws.reshape(-1, 4), list(draws[:, :, 3]), sizes
        return self._draws

    def per_row(self, of_segments: list[float | tuple[float, ...]], dtype: np.dtype) -> np.ndarray:
        """[S W] from one number per segment or per row; the result of the last call is cached."""
        known, rows = self._per_row
        if known != of_segments or rows.dtype != dtype:
            each = [np.broadcast_to(np.array(own, dtype=dtype), self.num_workers) for own in of_segments]
            rows = np.concatenate(each)
            self._per_row = (of_segments, rows)
        return rows

    def per_segment(self, of_parts: Any) -> list[Any]:
        """[sum of W L] to [W, L] for each segment; arrays or tensors."""
        starts, num_layers = self.part_of_segment, self.num_layers
        if len(num_layers) == 1:
            return [of_parts.reshape(-1, num_layers[0])]
        return [
            of_parts[starts[i] : starts[i + 1]].reshape(-1, num_layers[i]) for i in range(len(num_layers))
        ]

    def per_part(self, of_pieces: np.ndarray) -> np.ndarray:
        """Sums of [P] per part, [sum of W L]."""
        if len(self.parts) == len(of_pieces):
            return of_pieces
        return np.add.reduceat(of_pieces, self.part_pieces)


def _address(x: Input) -> tuple[int, ...]:
    rows, gradient = x.rows, x.segment.rows
    rest = (rows.data_ptr(), rows.stride(0))
    return rest + ((0, 0) if x.memory is None else (gradient.data_ptr(), gradient.stride(0)))


class PieceTables:
    """Cache of the tables of a thread, one per group of segments.

    The hooks of two process groups run in two threads, and segments of two models may have equal names.
    """

    def __init__(self, make: Callable[[list[Input]], Any] = PieceTable) -> None:
        self._make = make
        self._of_thread = threading.local()

    @property
    def _known(self) -> dict[Any, Any]:
        known: dict[Any, Any] = self._of_thread.__dict__.setdefault("known", {})
        return known

    def of(self, inputs: list[Input]) -> Any:
        """The table of these inputs, pointed at their entries."""
        key = (inputs[0].rows.dtype, *((x.segment.name, x.segment.rows.shape) for x in inputs))
        known = self._known
        table = known.get(key)
        if table is None or not table.fits(inputs):
            if len(known) >= 64:  # tables are quick to rebuild
                known.clear()
            table = known[key] = self._make(inputs)
        table.point(inputs)
        return table
