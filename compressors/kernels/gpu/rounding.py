"""Encoding and decoding of quantisers' payloads by Triton kernels: all rows of a step in a few launches."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.randomness import hash_keys
from compressors.core.rules import Halves, Levels, Powers, Rounding, Signs, Ternary
from compressors.encoding.packing import widths_of
from compressors.kernels.gpu import quantising as loops
from compressors.kernels.gpu.table import TILE, Adding, upload
from compressors.kernels.gpu.taking import NO_FUSED_MULTIPLY_ADD, add_up

Field = tuple[Tensor, list[int]]  # of all rows, joined in order, and the length of each row's part
_PIECE, _LINES, _ROW_COLUMNS = loops.PIECE.value, loops.LINES.value, loops.ROW_COLUMNS.value
_WIDTHS = (8, 4, 2, 1)  # of parts of codes, in the order of the columns of ``rows``
_DRAWN, _WITH_EDGES = (Ternary, Powers, Levels), (Signs, Halves, Ternary)


def encode(roundings: Sequence[Rounding], rows: Sequence[Tensor]) -> list[Field]:
    """The fields of the payloads of ``rows``, [d] float32 each, which become residuals.

    The roundings differ in their edges and seeds alone.
    """
    sizes = [len(row) for row in rows]
    table, kind = _table_of(roundings, sizes, rows[0].device), roundings[0]
    widths = _widths(kind)
    lengths = {width: [-(-size // each) for size in sizes] for width, each in widths.items()}
    starts = np.cumsum([0, *(length for own in lengths.values() for length in own)])
    packed = torch.empty(starts[-1], dtype=torch.uint8, device=table.device)
    first_bytes = dict(zip(widths, starts[:-1].reshape(len(widths), -1), strict=True))
    of_rows = upload(table.rows(roundings, rows, first_bytes), table.device)
    if isinstance(kind, Powers):
        table.launch(loops.round_to_powers, of_rows, packed)
        scales: list[Field] = []
    else:
        found = _scales(kind, table, of_rows)
        scales = [(found, table.scales_of_rows)]
        written = (table.parts, found, packed)
        if isinstance(kind, Levels):
            settings = (kind.bucket_size, kind.number)
            table.launch(loops.round_to_levels, of_rows, found, packed, *settings, BITS=kind.bits)
        elif isinstance(kind, Ternary):
            table.launch(loops.round_to_ternary, of_rows, *written, EACH=_each(kind))
        else:
            table.launch(loops.round_to_signs, of_rows, *written, TWO=isinstance(kind, Halves))
    fields = packed.split([sum(own) for own in lengths.values()])
    return [*zip(fields, lengths.values(), strict=True), *scales]


def decode(
    roundings: Sequence[Rounding], payloads: Sequence[Sequence[Sequence[Tensor]]], outs: Sequence[Tensor]
) -> None:
    """Add the payloads [R][n] of all workers, in order, to each of ``outs``, [d] float32 each."""
    table, kind = _table_of(roundings, [len(out) for out in outs], outs[0].device), roundings[0]
    whole = [[[field.contiguous() for field in payload] for payload in row] for row in payloads]
    addresses = np.array([[[field.data_ptr() for field in own] for own in row] for row in whole])
    of_rows = upload(table.rows(roundings, outs, {}), table.device)
    fields = upload(addresses.astype(np.int64), table.device)
    workers, num_fields = addresses.shape[1:]
    if isinstance(kind, Powers):
        table.launch(loops.add_powers, of_rows, fields, workers)
    elif isinstance(kind, Levels):
        words = (fields, workers, kind.bucket_size, kind.number)
        table.launch(loops.add_levels, of_rows, *words, BITS=kind.bits, FIELDS=num_fields)
    elif isinstance(kind, Ternary):
        table.launch(loops.add_ternary, of_rows, table.parts, fields, workers, EACH=_each(kind))
    else:
        two = isinstance(kind, Halves)
        table.launch(loops.add_signs, of_rows, table.parts, fields, workers, TWO=two)


def are_alike(roundings: Sequence[Rounding]) -> bool:
    """Whether roundings differ in their edges and seeds alone, so that one launch computes all of them."""
    return len({(type(own), _settings(own)) for own in roundings}) == 1


def random_bits(seed: int, size: int, device: torch.device) -> Tensor:
    """``randomness.random_bits`` as int32 [size], drawn on the device."""
    row = np.array([0, size, *map(int, hash_keys(seed)), *(_ROW_COLUMNS - 4) * [0]], dtype=np.int64)
    bits = torch.empty(size, dtype=torch.int32, device=device)
    if size:
        loops.draw[(-(-size // TILE),)](upload(row, device), bits, TILE=TILE)
    return bits


class _Table:
    """Parts, pieces and tiles of rows of given sizes, on the device; see ``quantising.py``."""

    def __init__(
        self, edges: Sequence[np.ndarray], sizes: Sequence[int], each: int, two: bool, device: torch.device
    ) -> None:
        self.device = device
        counts = np.array([len(own) - 1 for own in edges])
        self.first_parts = counts.cumsum() - counts
        begins, ends = (np.concatenate([own[cut] for own in edges]) for cut in (slice(-1), slice(1, None)))
        row_of = np.arange(len(edges)).repeat(counts)
        local = np.arange(len(begins)) - self.first_parts[row_of]
        self.scales_of_rows = (counts * (1 + two)).tolist()
        starts = (1 + two) * self.first_parts[row_of]
        self.parts = upload(np.stack([begins, ends, local, local + two * counts[row_of], starts], 1), device)
        self.num_parts, self.num_scales = len(begins), len(begins) * (1 + two)
        self._begins, self._ends, self._row_of = begins, ends, row_of
        blocks = -(-(ends - begins) // 256)
        self._first_blocks, self.num_blocks = blocks.cumsum() - blocks, int(blocks.sum())
        self._sums: dict[bool, tuple[Tensor, Adding]] = {}
        tiles = [_tiles(row, *of) for row, of in enumerate(zip(sizes, edges, self.first_parts, strict=True))]
        self.tiles = upload(np.concatenate([own(_LINES * each) for own in tiles]), device)

    def rows(
        self, roundings: Sequence[Rounding], rows: Sequence[Tensor], first_bytes: dict[int, np.ndarray]
    ) -> np.ndarray:
        """The table ``rows``, with the starts of the rows' codes of each width."""
        found = np.zeros((len(rows), _ROW_COLUMNS), dtype=np.int64)
        found[:, 0] = [row.data_ptr() for row in rows]
        found[:, loops.SIZE.value] = [len(row) for row in rows]
        if isinstance(roundings[0], _DRAWN):
            keys = [hash_keys(own.seed) for own in roundings if isinstance(own, _DRAWN)]
            found[:, loops.KEYS.value : loops.KEYS.value + 2] = keys
        for width, starts in first_bytes.items():
            found[:, loops.CODES.value + _WIDTHS.index(width)] = starts
        found[:, loops.FIRST_PART.value] = self.first_parts
        return found

    def launch(self, kernel: Any, rows: Tensor, *words: Any, **constants: Any) -> None:
        """Launch a kernel with one program for each tile."""
        if len(self.tiles):
            kernel[(len(self.tiles),)](self.tiles, rows, *words, **constants, **NO_FUSED_MULTIPLY_ADD)

    def pieces(self, both: bool) -> tuple[Tensor, Adding]:
        """The pieces of parts, and the additions of their blocks' sums, or of ``both`` sums of each block."""
        if both not in self._sums:
            numbers = -(-(self._ends - self._begins) // _PIECE)
            of = np.arange(self.num_parts).repeat(numbers)
            number = np.arange(len(of)) - (numbers.cumsum() - numbers)[of]
            begins = self._begins[of] + _PIECE * number
            sizes = np.minimum(_PIECE, self._ends[of] - begins)
            blocks = self._first_blocks[of] + _PIECE // 256 * number
            pieces = np.stack([self._row_of[of], begins, sizes, blocks, of], 1)
            ends = np.append(self._first_blocks[1:], self.num_blocks)[: self.num_parts]
            parts = np.stack([self._first_blocks, ends], 1)
            parts = np.concatenate([parts, parts + self.num_blocks]) if both else parts
            self._sums[both] = upload(pieces, self.device), Adding(parts, self.device)
        return self._sums[both]


class _tiles(NamedTuple):
    """The tiles of a row: its number, its size, its edges [L + 1] and its first part."""

    row: int
    size: int
    edges: np.ndarray
    first_part: int

    def __call__(self, length: int) -> np.ndarray:
        """[M, 4] for tiles of ``length`` entries."""
        begins = np.arange(0, self.size, length)
        lasts = np.minimum(begins + length, self.size) - 1
        of_part = [
            self.first_part + np.searchsorted(self.edges[1:], at, side="right") for at in (begins, lasts)
        ]
        return np.stack([np.full_like(begins, self.row), begins // length, *of_part], 1)


_known: dict[Any, _Table] = {}


def _table_of(roundings: Sequence[Rounding], sizes: list[int], device: torch.device) -> _Table:
    kind = roundings[0]
    parts = [own.edges.tobytes() for own in roundings if isinstance(own, _WITH_EDGES)]
    bucket_size = kind.bucket_size if isinstance(kind, Levels) else 0
    key = (type(kind), _each(kind), bucket_size, device, *sizes, *parts)
    table = _known.get(key)
    if table is None:
        if len(_known) >= 64:  # tables are quick to rebuild
            _known.clear()
        edges = [_edges(own, size) for own, size in zip(roundings, sizes, strict=True)]
        table = _known[key] = _Table(edges, sizes, _each(kind), isinstance(kind, Halves), device)
    return table


def _scales(kind: Rounding, table: _Table, rows: Tensor) -> Tensor:
    """The scales of all parts, in the order of the rows' fields."""
    what = _kind_of_sums(kind)
    both = what in (loops.MOMENTS, loops.HALVES)
    pieces, adding = table.pieces(both)
    sums = torch.empty((1 + both) * table.num_blocks, dtype=torch.float64, device=table.device)
    facts = torch.zeros(table.num_parts, dtype=torch.int32, device=table.device)
    words = (pieces, rows, sums, sums[table.num_blocks :], facts)
    if len(pieces):
        loops.sum_up[(len(pieces),)](*words, KIND=what.value, **NO_FUSED_MULTIPLY_ADD)
    totals = sums if what is loops.HIGHEST else add_up(sums, adding)
    scales = torch.empty(table.num_scales, dtype=torch.float32, device=table.device)
    clip = kind.clip or 0.0 if isinstance(kind, Ternary) else 0.0
    if table.num_parts:
        grid = (-(-table.num_parts // TILE),)
        factor = torch.full((1,), clip, dtype=torch.float64, device=table.device)
        results = (facts, scales, factor, table.num_parts)
        loops.scale_parts[grid](
            table.parts, totals, *results, KIND=what.value, TILE=TILE, **NO_FUSED_MULTIPLY_ADD
        )
    return scales


def _kind_of_sums(kind: Rounding) -> Any:
    if isinstance(kind, Signs):
        return loops.ABSOLUTE
    if isinstance(kind, Halves):
        return loops.HALVES
    if isinstance(kind, Levels):
        return loops.HIGHEST if kind.norm == "max" else loops.SQUARES
    return loops.HIGHEST if isinstance(kind, Ternary) and kind.clip is None else loops.MOMENTS


def _edges(rounding: Rounding, size: int) -> np.ndarray:
    """The boundaries of a row's parts: layers, columns or buckets; a rounding to powers has none."""
    if isinstance(rounding, Levels):
        return np.append(np.arange(0, size, rounding.bucket_size), size)
    return np.zeros(1, dtype=np.int64) if isinstance(rounding, Powers) else rounding.edges


def _widths(rounding: Rounding) -> dict[int, int]:
    """The widths of the codes' parts, and how many of them a byte has."""
    if isinstance(rounding, Levels):
        return {width: 8 // width for width in widths_of(rounding.bits)}
    if isinstance(rounding, Ternary):
        return {2: 4} if rounding.values_per_byte == 4 else {8: 5}  # five codes in base 3
    return {8: 1, 1: 8} if isinstance(rounding, Powers) else {1: 8}


def _each(rounding: Rounding) -> int:
    """Entries of a line of a tile."""
    return 5 if isinstance(rounding, Ternary) and rounding.values_per_byte == 5 else 8


def _settings(rounding: Rounding) -> tuple[Any, ...]:
    own = rounding._asdict()
    return tuple(own[name] for name in own if name not in ("edges", "seed"))
