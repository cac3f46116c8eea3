"""Triton kernels that read p = e + factor g without computing it in place: surveys, and large entries.

The columns of ``pieces`` are those of ``blocks.py``. Sums have the order of ``squared_norm``.
"""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import (
    ADDRESS,
    BASE,
    BLOCKS,
    COLUMNS,
    ENTRIES,
    FIRST_BLOCK,
    GRADIENT,
    ITS_GRADIENT,
    NUMBER,
    ROW,
    ROW_COLUMNS,
    SIZE,
    add_halves,
)


@triton.jit
def p_at(entries, gradient, i, inside, factor):
    """Entries ``i`` of p, from the addresses of e and of g or 0; 0 where not ``inside``."""
    kind: tl.constexpr = tl.pointer_type(factor.dtype.element_ty)
    x = tl.load(entries.to(kind) + i, mask=inside, other=0.0)
    adds = inside & (gradient != 0)
    change = tl.load(gradient.to(kind) + i, mask=adds, other=0.0)
    return tl.where(adds, tl.fma(change, tl.load(factor), x), x)


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


@triton.jit
def count_large(pieces, factor, thresholds, counts):
    """Per piece the number of entries with |p| >= their row's threshold, and of NaN."""
    piece = pieces + COLUMNS * tl.program_id(0)
    size = tl.load(piece + SIZE).to(tl.int32)
    i = tl.arange(0, BLOCKS * 256)
    x = p_at(tl.load(piece + ENTRIES), tl.load(piece + GRADIENT), i, i < size, factor)
    large = (i < size) & ~(tl.abs(x) < tl.load(thresholds + tl.load(piece + ROW)))
    tl.store(counts + tl.load(piece + NUMBER), tl.sum(large.to(tl.int32), 0))


@triton.jit
def list_large(pieces, factor, thresholds, counts, ends, found):
    """The positions in their rows of the entries that ``count_large`` counts, each piece's up to its end."""
    piece = pieces + COLUMNS * tl.program_id(0)
    number = tl.load(piece + NUMBER)
    count = tl.load(counts + number)
    if count > 0:
        size = tl.load(piece + SIZE).to(tl.int32)
        i = tl.arange(0, BLOCKS * 256)
        x = p_at(tl.load(piece + ENTRIES), tl.load(piece + GRADIENT), i, i < size, factor)
        large = (i < size) & ~(tl.abs(x) < tl.load(thresholds + tl.load(piece + ROW)))
        at = tl.load(ends + number) - count + tl.cumsum(large.to(tl.int32), 0) - 1
        tl.store(found + at, tl.load(piece + BASE) + i, mask=large)
