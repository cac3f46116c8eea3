"""Triton kernel that forms p, marks selected entries, and sums squares of the others; columns of its tables.

One program works on one piece of at most ``BLOCKS`` blocks (``table.py`` has the columns). The output of a
program depends on its piece alone, so the number and order of programs change nothing. Squares are added in
the order of ``squared_norm``. Entries are compared by the bits of their magnitudes as integers, which have
the same order as the magnitudes, with NaN last.
"""

import triton
import triton.language as tl

BLOCKS: tl.constexpr = tl.constexpr(16)  # of 256 entries: 8 lines of 32 lanes
ENTRIES: tl.constexpr = tl.constexpr(0)
GRADIENT: tl.constexpr = tl.constexpr(1)
SIZE: tl.constexpr = tl.constexpr(2)
FIRST_BLOCK: tl.constexpr = tl.constexpr(3)
ROW: tl.constexpr = tl.constexpr(4)
BASE: tl.constexpr = tl.constexpr(5)
NUMBER: tl.constexpr = tl.constexpr(6)  # of the piece, in the order of entries; programs may have another one
COLUMNS: tl.constexpr = tl.constexpr(7)
ADDRESS: tl.constexpr = tl.constexpr(0)  # columns of the table of rows: of the first entry,
FIRST_WORD: tl.constexpr = tl.constexpr(1)  # the row's first word of given marks,
ITS_GRADIENT: tl.constexpr = tl.constexpr(2)  # and the address of its gradient or 0
ROW_COLUMNS: tl.constexpr = tl.constexpr(3)
AT_LEAST: tl.constexpr = tl.constexpr(0)  # mark entries whose key is at least their row's
GIVEN: tl.constexpr = tl.constexpr(1)  # marks are given, one bit per entry of a row
NOTHING: tl.constexpr = tl.constexpr(2)
PARTIAL: tl.constexpr = tl.constexpr(0)  # pieces that are shorter, or have no gradient where others have one
WHOLE: tl.constexpr = tl.constexpr(1)
ALIGNED: tl.constexpr = tl.constexpr(2)  # whole, at addresses that 16 divides


@triton.jit
def key_of(x, like):
    """The bits of the magnitudes of ``x`` as integers of ``like``'s type."""
    kind: tl.constexpr = like.dtype.element_ty
    all_but_sign: tl.constexpr = 0x7FFFFFFF if kind == tl.int32 else 0x7FFFFFFFFFFFFFFF
    return x.to(kind, bitcast=True) & all_but_sign


@triton.jit
def add_halves(lanes):
    """[B, 32] to [B]: 16 and 16, 8 and 8, down to one. A sum of two is the same in either order."""
    rows: tl.constexpr = lanes.shape[0]
    lanes = tl.sum(tl.reshape(lanes, (rows, 2, 16)), 1)
    lanes = tl.sum(tl.reshape(lanes, (rows, 2, 8)), 1)
    lanes = tl.sum(tl.reshape(lanes, (rows, 2, 4)), 1)
    lanes = tl.sum(tl.reshape(lanes, (rows, 2, 2)), 1)
    return tl.sum(lanes, 1)


@triton.jit
def mark(
    pieces,
    factor,
    keys,
    rows,
    masks,
    sums,
    sums_of_all,
    counts,
    again,
    RULE: tl.constexpr,
    ADD: tl.constexpr,
    KIND: tl.constexpr,
    AGAIN: tl.constexpr,
):
    """Write p = e + factor g over e; masks and counts of selected entries; sums of the others and of all.

    All pieces of a launch are of one ``KIND``. A thread loads four adjacent fp32 entries of an ``ALIGNED``
    line by one instruction. They belong to four lanes of the sum, so no entry is exchanged between threads
    before the lanes are added. With ``AGAIN``, only pieces of rows whose flag in ``again`` is set are marked.
    """
    piece = pieces + COLUMNS * tl.program_id(0)
    size, first = tl.load(piece + SIZE).to(tl.int32), tl.load(piece + FIRST_BLOCK)
    row, base = tl.load(piece + ROW), tl.load(piece + BASE)
    if AGAIN:  # noqa: SIM102 - a constant at compile time, unlike the inner condition
        if tl.load(again + row) == 0:
            return
    pointer: tl.constexpr = tl.pointer_type(factor.dtype.element_ty)
    p = tl.load(piece + ENTRIES).to(pointer)
    blocks = tl.arange(0, BLOCKS)
    lane = tl.arange(0, 32)[None, :]
    lanes = tl.zeros((BLOCKS, 32), tl.float64)
    of_all = tl.zeros((BLOCKS, 32), tl.float64)
    marks = tl.zeros((BLOCKS, 32), tl.uint32)
    there = blocks < BLOCKS if KIND != PARTIAL else blocks * 256 < size
    if KIND == ALIGNED:
        p = tl.multiple_of(p, 16)
    if ADD:
        gradient, by = tl.load(piece + GRADIENT), tl.load(factor)
        g = gradient.to(pointer)
        if KIND == ALIGNED:
            g = tl.multiple_of(g, 16)
    if RULE == AT_LEAST:
        limit = tl.load(keys + row)
    if RULE == GIVEN:
        given = masks + tl.load(rows + ROW_COLUMNS * row + FIRST_WORD)
    for line in tl.static_range(8):
        i = blocks[:, None] * 256 + line * 32 + lane
        if KIND != PARTIAL:
            x = tl.load(p + i)
            if ADD:
                x = tl.fma(tl.load(g + i), by, x)
                tl.store(p + i, x)
        else:
            x = tl.load(p + i, mask=i < size, other=0.0)
            if ADD:
                adds = (i < size) & (gradient != 0)
                x = tl.where(adds, tl.fma(tl.load(g + i, mask=adds, other=0.0), by, x), x)
                tl.store(p + i, x, mask=adds)
        of_all = add_square(of_all, x)
        if RULE == AT_LEAST:
            marked = key_of(x, keys) >= limit
            if KIND == PARTIAL:
                marked = marked & (i < size)
            marks |= marked.to(tl.uint32) << (4 * line)
            x = tl.where(marked, 0.0, x)
        if RULE == GIVEN:
            place = base + i
            word = tl.load(given + place // 32, mask=(i < size) | (KIND != PARTIAL), other=0)
            x = tl.where(((word >> (place % 32).to(tl.int32)) & 1) != 0, 0.0, x)
        if RULE != NOTHING:
            lanes = add_square(lanes, x)
    tl.store(sums_of_all + first + blocks, add_halves(of_all), mask=there)
    if RULE != NOTHING:
        tl.store(sums + first + blocks, add_halves(lanes), mask=there)
    if RULE == AT_LEAST:
        four = tl.arange(0, 4)[None, None, :].to(tl.uint32)
        words = tl.sum(tl.reshape(marks, (BLOCKS, 8, 4)) << four, 2)
        at = masks + (first + blocks)[:, None] * 8 + tl.arange(0, 8)[None, :]
        tl.store(at, words.to(tl.int32, bitcast=True), mask=there[:, None])
        tl.store(counts + tl.load(piece + NUMBER), tl.sum(tl.sum(ones(words), 1), 0))


@triton.jit
def add_square(total, x):
    """``total`` + the square of ``x``, with one rounding of the square and one of the sum.

    The square of an fp32 number is exact in fp64, so one instruction may compute both.
    """
    wide = x.to(tl.float64)
    return tl.fma(wide, wide, total) if x.dtype == tl.float32 else total + wide * wide


@triton.jit
def ones(word):
    """Number of set bits of each uint32."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24).to(tl.int32)
