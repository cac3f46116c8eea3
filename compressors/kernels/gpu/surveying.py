"""Triton kernels for surveys of p = e + factor g, which is not computed in place.

The columns of ``pieces`` are those of ``blocks.py``. Sums have the order of ``squared_norm``.
"""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import (
    ADDRESS,
    BLOCKS,
    COLUMNS,
    ENTRIES,
    FIRST_BLOCK,
    GRADIENT,
    ITS_GRADIENT,
    ROW,
    ROW_COLUMNS,
    SIZE,
    add_halves,
)
from compressors.kernels.gpu.searching import p_at


@triton.jit
def sample(rows, sizes, factor, magnitudes, SAMPLE: tl.constexpr):
    """Per row the magnitudes of ``SAMPLE`` entries, one of each of as many intervals; -1 beyond a short
    row."""
    row = tl.program_id(0).to(tl.int64)
    own, size = rows + ROW_COLUMNS * row, tl.load(sizes + row)
    j = tl.arange(0, SAMPLE).to(tl.int64)
    there = j < size
    i = j
    if size > SAMPLE:  # with even distances, all could be of one channel
        i = (j * size + (j * 10127 % SAMPLE) * size // SAMPLE) // SAMPLE
    x = tl.abs(p_at(tl.load(own + ADDRESS), tl.load(own + ITS_GRADIENT), i, there, factor))
    tl.store(magnitudes + row * SAMPLE + j, tl.where(there, x, -1.0))


@triton.jit
def survey(
    pieces,
    factor,
    levels,
    floors,
    starts,
    sums,
    totals,
    squares,
    counts,
    equal,
    kept,
    tails,
    ALL: tl.constexpr,
):
    """Per block the sums of a ``Survey``; per row its counts, and the magnitudes above its floor, in any
    order.

    ``counts``, ``equal`` and ``kept`` [R] count entries of at least the level, equal to the floor and above
    it. Those above go to ``tails`` from ``starts`` [R + 1] on, as many as there is room for. Without ``ALL``
    only excesses are summed.
    """
    piece = pieces + COLUMNS * tl.program_id(0)
    size, first = tl.load(piece + SIZE).to(tl.int32), tl.load(piece + FIRST_BLOCK)
    row = tl.load(piece + ROW)
    entries, gradient = tl.load(piece + ENTRIES), tl.load(piece + GRADIENT)
    level, floor = tl.load(levels + row), tl.load(floors + row)
    blocks = tl.arange(0, BLOCKS)
    lane = tl.arange(0, 32)[None, :]
    of_excess = tl.zeros((BLOCKS, 32), tl.float64)
    of_total = tl.zeros((BLOCKS, 32), tl.float64)
    of_square = tl.zeros((BLOCKS, 32), tl.float64)
    reached = tl.zeros((BLOCKS, 32), tl.int32)
    same = tl.zeros((BLOCKS, 32), tl.int32)
    above = tl.zeros((BLOCKS, 32), tl.int32)
    for line in tl.static_range(8):
        i = blocks[:, None] * 256 + line * 32 + lane
        inside = i < size
        x = p_at(entries, gradient, i, inside, factor)
        wide = x.to(tl.float64)
        excess = tl.abs(wide) - level.to(tl.float64)
        excess = tl.where(excess < 0.0, 0.0, excess)
        of_excess += tl.where(inside, excess, 0.0)
        if ALL:
            of_total += wide
            of_square += tl.where(inside, excess * excess, 0.0)
        reached += (inside & ~(tl.abs(x) < level)).to(tl.int32)
        same += (inside & (tl.abs(x) == floor)).to(tl.int32)
        above += (inside & ~(tl.abs(x) <= floor)).to(tl.int32)  # also NaN
    there = blocks * 256 < size
    tl.store(sums + first + blocks, add_halves(of_excess), mask=there)
    if ALL:
        tl.store(totals + first + blocks, add_halves(of_total), mask=there)
        tl.store(squares + first + blocks, add_halves(of_square), mask=there)
    tl.atomic_add(counts + row, tl.sum(tl.sum(reached, 1), 0), sem="relaxed")
    tl.atomic_add(equal + row, tl.sum(tl.sum(same, 1), 0), sem="relaxed")
    number = tl.sum(tl.sum(above, 1), 0)
    if number > 0:
        begin = tl.load(starts + row) + tl.atomic_add(kept + row, number, sem="relaxed")
        j = tl.arange(0, BLOCKS * 256)
        magnitudes = tl.abs(p_at(entries, gradient, j, j < size, factor))
        keeps = (j < size) & ~(magnitudes <= floor)
        at = begin + tl.cumsum(keeps.to(tl.int32), 0) - 1
        tl.store(tails + at, magnitudes, mask=keeps & (at < tl.load(starts + row + 1)))
