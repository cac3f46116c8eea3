"""Where the entries of some segments lie in memory, in the words of the compiled loops."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from compressors.api import Segment

_PIECE = 2**18  # entries that one thread works on at a time, a whole number of blocks
_BLOCK = 256
REST, GRADIENT, SIZE, FIRST_BLOCK, ROW, BASE = range(6)


class Table:
    """Rows, pieces and parts of S segments of W workers with L layers each; made once, pointed anew.

    Row s W + w is worker w's in segment s; its pieces, none of more than ``longest`` entries (whole blocks),
    follow each other layer by layer. A part is one layer of one row. Addresses are those of the tensors
    that the segments hold.
    """

    def __init__(self, segments: list[Segment], longest: int = _PIECE) -> None:
        self.addresses: list[tuple[int, ...]] = []
        self.num_workers = len(segments[0].rows)
        self.edges = [s.edges for s in segments]
        self.num_layers = [s.edges.numel() - 1 for s in segments]
        pieces, row_pieces, parts, part_pieces, block = [], [0], [], [], 0
        for number, segment in enumerate(segments):
            edges = segment.edges.tolist()
            for worker in range(self.num_workers):
                row = number * self.num_workers + worker
                for begin, end in pairwise(edges):
                    first_block = block
                    part_pieces.append(len(pieces))
                    for base in range(begin, end, longest) or (begin,):  # a layer of nothing is a piece too
                        size = min(longest, end - base)
                        pieces.append((0, 0, size, block, row, base))
                        block += -(-size // _BLOCK)
                    parts.append((first_block, block))
                row_pieces.append(len(pieces))
        self.pieces = np.array(pieces, dtype=np.int64)  # [P, 6]
        self.row_pieces = np.array(row_pieces, dtype=np.int64)  # [S W + 1]
        self.parts = np.array(parts, dtype=np.int64)  # [sum of W L, 2], first and last block
        self.part_pieces = np.array(part_pieces, dtype=np.int64)
        self.part_of_segment = np.cumsum([0] + [self.num_workers * n for n in self.num_layers]).tolist()
        self.sums = np.empty(block)  # one for each block
        self.masks = np.empty(4 * block, dtype=np.uint64)
        self.counts = np.empty(len(pieces), dtype=np.int64)
        self.faulty = np.empty(len(pieces), dtype=np.bool_)
        self._wholes = np.empty(0)
        self._draws: dict[Any, tuple[np.ndarray, list[int]]] = {}
        self._per_row: tuple[list, np.ndarray] = ([], np.empty(0))

    def wholes(self, wanted: bool) -> np.ndarray:
        """As ``sums``, of everything; empty if not ``wanted``."""
        if not wanted:
            return self.sums[:0]
        if not len(self._wholes):
            self._wholes = np.empty_like(self.sums)
        return self._wholes

    def fits(self, segments: list[Segment]) -> bool:
        """Whether the layers of ``segments``, which have the same names and shapes, lie alike."""
        return all(
            s.edges is edges or s.edges.numel() == edges.numel() == 2 or s.edges.equal(edges)
            for s, edges in zip(segments, self.edges, strict=True)
        )

    def point(self, segments: list[Segment]) -> None:
        """Take down the addresses of these segments' entries."""
        addresses = [_address(s) for s in segments]
        if addresses == self.addresses:
            return
        self.addresses = addresses
        segment, worker = np.divmod(self.pieces[:, ROW], self.num_workers)
        rest, stride, gradient, gradient_stride = np.array(addresses, dtype=np.int64).T[:, segment]
        item = segments[0].rows.itemsize
        self.pieces[:, REST] = rest + item * (worker * stride + self.pieces[:, BASE])
        there = gradient != 0
        offsets = item * (worker * gradient_stride + self.pieces[:, BASE])
        self.pieces[:, GRADIENT] = there * (gradient + offsets)

    def draws(self, shapes: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, list[int]]:
        """For positions of these shapes, one row or W, what ``native.take`` wants to know of each row.

        [S, W, 4] without rotations, and how many values each segment gives.
        """
        if shapes not in self._draws:
            workers = np.arange(self.num_workers)
            draws = np.zeros((len(shapes), self.num_workers, 4), dtype=np.int64)
            sizes, drawn_from = [], 0
            for own, (rows, k) in zip(draws, shapes, strict=True):
                own[:, 0] = drawn_from + (k * workers if rows > 1 else 0)
                own[:, 1] = sum(sizes) + k * workers
                own[:, 2] = k
                drawn_from += rows * k
                sizes.append(k * self.num_workers)
            self._draws = {shapes: (draws, sizes)}
        return self._draws[shapes]

    def per_row(self, of_segments: list[float], dtype: np.dtype) -> np.ndarray:
        """[S] to [S W]; what the last call asked for is kept."""
        known, rows = self._per_row
        if known != of_segments or rows.dtype != dtype:
            rows = np.array(of_segments, dtype=dtype).repeat(self.num_workers)
            self._per_row = (of_segments, rows)
        return rows

    def per_segment(self, of_parts: Any) -> list[Any]:
        """[sum of W L] to [W, L] for each segment; arrays or tensors."""
        starts, num_layers = self.part_of_segment, self.num_layers
        return [
            of_parts[starts[i] : starts[i + 1]].reshape(-1, num_layers[i]) for i in range(len(num_layers))
        ]

    def layer_of(self, piece: int) -> tuple[int, int, int]:
        """The worker, the segment and the segment's layer that a piece is of."""
        segment, worker = divmod(int(self.pieces[piece, ROW]), self.num_workers)
        part = int(np.searchsorted(self.part_pieces, piece, side="right")) - 1
        return worker, segment, (part - self.part_of_segment[segment]) % self.num_layers[segment]

    def per_part(self, of_pieces: np.ndarray) -> np.ndarray:
        """[P] added up to [sum of W L]."""
        if len(self.parts) == len(of_pieces):
            return of_pieces
        return np.add.reduceat(of_pieces, self.part_pieces)


def _address(segment: Segment) -> tuple[int, ...]:
    rows, gradient = segment.rows, segment.gradient
    rest = (rows.data_ptr(), rows.stride(0))
    return rest + ((0, 0) if gradient is None else (gradient.data_ptr(), gradient.stride(0)))


class Tables:
    """The tables of those groups of segments that a process works on."""

    def __init__(self, make: Callable[[list[Segment]], Any] = Table) -> None:
        self._make = make
        self._known: dict[Any, Any] = {}

    def of(self, segments: list[Segment]) -> Any:
        """The table of these segments, pointed at their entries."""
        key = (segments[0].rows.dtype, *((s.name, s.rows.shape) for s in segments))
        table = self._known.get(key)
        if table is None or not table.fits(segments):
            if len(self._known) >= 64:  # they are remade in a moment
                self._known.clear()
            table = self._known[key] = self._make(segments)
        table.point(segments)
        return table
