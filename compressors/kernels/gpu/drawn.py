"""Triton kernels for drawn positions, sums of rows, and sums of sent entries.

``draws`` has, per row, the start of its ascending positions and of its values, their number, and the rotation
of the values. A program works on ``TILE`` draws of one row.
"""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import ADDRESS, FIRST_WORD, ROW_COLUMNS


@triton.jit
def set_bits(draws, rows, positions, masks, tiles, TILE: tl.constexpr):
    """Set a bit for each drawn position, from each row's first word in ``masks`` on; ``masks`` must be
    zero."""
    row = (tl.program_id(0) // tiles).to(tl.int64)
    j = tl.program_id(0) % tiles * TILE + tl.arange(0, TILE)
    there = j < tl.load(draws + 4 * row + 2)
    position = tl.load(positions + tl.load(draws + 4 * row) + j, mask=there, other=0)
    word = masks + tl.load(rows + ROW_COLUMNS * row + FIRST_WORD) + position // 32
    bit = (tl.full((TILE,), 1, tl.uint32) << (position % 32).to(tl.uint32)).to(tl.int32, bitcast=True)
    tl.atomic_or(word, bit, mask=there, sem="relaxed")  # order-independent


@triton.jit
def take(draws, rows, positions, values, tiles, TILE: tl.constexpr):
    """Move the entries at the drawn positions to ``values`` and set them to zero."""
    row = (tl.program_id(0) // tiles).to(tl.int64)
    j = tl.program_id(0) % tiles * TILE + tl.arange(0, TILE)
    count = tl.load(draws + 4 * row + 2)
    there = j < count
    position = tl.load(positions + tl.load(draws + 4 * row) + j, mask=there, other=0)
    entry = tl.load(rows + ROW_COLUMNS * row + ADDRESS).to(values.dtype) + position
    x = tl.load(entry, mask=there, other=0.0)
    place = (j + tl.load(draws + 4 * row + 3)) % tl.maximum(count, 1)
    tl.store(values + tl.load(draws + 4 * row + 1) + place, x, mask=there)
    tl.store(entry, tl.zeros_like(x), mask=there)
