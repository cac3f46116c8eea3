"""Triton kernels that form p, mark selected entries, sum squares of the others, and pack marked entries.

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
def marks_of(masks, first, size):
    """The marks of a piece [8 * BLOCKS] uint32, one word per line of 32 entries.

    ``masks`` has 8 words per block, of four lanes each, with four bits per line: ``mark`` computes these
    without an exchange between threads.
    """
    words, lanes = tl.arange(0, 8 * BLOCKS), tl.arange(0, 8)[None, :]
    at = masks + first * 8 + (words // 8 * 8)[:, None] + lanes
    found = tl.load(at, mask=(words // 8 * 256 < size)[:, None], other=0).to(tl.uint32, bitcast=True)
    of_line = (found >> (words % 8 * 4).to(tl.uint32)[:, None]) & 15
    return tl.sum(of_line << (4 * lanes).to(tl.uint32), 1)


@triton.jit
def pack(
    pieces, factor, keys, masks, sums, marked, ties, counts, begins, values, indices, EXACT: tl.constexpr
):
    """Move marked entries to ``values`` and ``indices``, from each piece's begin on, and set them to zero.

    A thread has 32 entries, whose marks are one word, and visits only the marked ones, which are few.

    With ``EXACT``, only marked entries with keys above the row's key and the first ``ties`` equal ones are
    moved, and the sums of blocks in which marked entries stay are recomputed.
    """
    piece = pieces + COLUMNS * tl.program_id(0)
    number = tl.load(piece + NUMBER)
    size, first = tl.load(piece + SIZE).to(tl.int32), tl.load(piece + FIRST_BLOCK)
    count = tl.load(counts + number)
    kind: tl.constexpr = tl.pointer_type(factor.dtype.element_ty)
    p = tl.load(piece + ENTRIES).to(kind)
    words = tl.arange(0, 8 * BLOCKS)
    word = marks_of(masks, first, size)
    sent = tl.zeros((8 * BLOCKS,), tl.int32)
    if count > 0:
        most = tl.max(ones(word), 0)
        limit = tl.zeros((8 * BLOCKS,), tl.int32)  # number of ties that a word may send
        if EXACT:
            key = tl.load(keys + tl.load(piece + ROW))
            above = tl.zeros((8 * BLOCKS,), tl.int32)
            equal = tl.zeros((8 * BLOCKS,), tl.int32)
            left = word
            for _ in range(most):
                x = tl.load(p + words * 32 + lowest(left), mask=left != 0, other=0.0)
                own = key_of(x, keys)
                above += ((left != 0) & (own > key)).to(tl.int32)
                equal += ((left != 0) & (own == key)).to(tl.int32)
                left = left & (left - 1)
            unused = tl.load(ties + number) - (tl.cumsum(equal, 0) - equal)
            limit = tl.minimum(equal, tl.maximum(unused, 0))
            sent = above + limit
        else:
            sent = ones(word)
        at = tl.load(begins + number) + (tl.cumsum(sent, 0) - sent).to(tl.int64)
        base = tl.load(piece + BASE)
        left = word
        for _ in range(most):
            i = words * 32 + lowest(left)
            taken = left != 0
            x = tl.load(p + i, mask=taken, other=0.0)
            if EXACT:
                own = key_of(x, keys)
                early = taken & (own == key) & (limit > 0)
                limit -= early.to(tl.int32)
                taken = (taken & (own > key)) | early
            tl.store(values + at, x, mask=taken)
            tl.store(indices + at, (base + i).to(tl.int32), mask=taken)
            tl.store(p + i, tl.zeros_like(x), mask=taken)
            at += taken.to(tl.int64)
            left = left & (left - 1)
    if EXACT:  # noqa: SIM102 - a constant at compile time, unlike the inner condition
        if count < tl.load(marked + number):
            tl.debug_barrier()  # wait until the zeros are written
            blocks = tl.arange(0, BLOCKS)
            kept = tl.sum(tl.reshape(ones(word) - sent, (BLOCKS, 8)), 1) > 0
            lanes = tl.zeros((BLOCKS, 32), tl.float64)
            for line in tl.static_range(8):
                here = blocks[:, None] * 256 + line * 32 + tl.arange(0, 32)[None, :]
                lanes = add_square(lanes, tl.load(p + here, mask=kept[:, None] & (here < size), other=0.0))
            tl.store(sums + first + blocks, add_halves(lanes), mask=kept & (blocks * 256 < size))


@triton.jit
def ones(word):
    """Number of set bits of each uint32."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def lowest(word):
    """Position of the lowest set bit of each uint32; 31 if none is set."""
    return ones(word ^ (word - 1)) - 1


@triton.jit
def add_counts(counts, begins, number, TILE: tl.constexpr):
    """Running totals of ``counts`` before each of them, and the total of all, [number + 1]; one program."""
    seen = tl.zeros((), tl.int64)
    for tile in range(0, number, TILE):
        i = tile + tl.arange(0, TILE)
        own = tl.load(counts + i, mask=i < number, other=0)
        tl.store(begins + i, seen + (tl.cumsum(own, 0) - own), mask=i < number)
        seen += tl.sum(own, 0)
    tl.store(begins + number, seen)


@triton.jit
def halve(jobs, sums, TILE: tl.constexpr):
    """Three halvings of long parts, as in ``total_up``; each program computes a tile of the result.

    ``jobs`` has the start of a part, its number of sums, and the start of the tile in it. No program reads
    the output of another one: programs write to the first eighth of a part, of which each reads only its own
    tile.
    """
    job = jobs + 3 * tl.program_id(0)
    x = sums + tl.load(job)
    count = tl.load(job + 1).to(tl.int32)
    once = (count + 1) // 2
    twice = (once + 1) // 2
    thrice = (twice + 1) // 2
    i = tl.load(job + 2).to(tl.int32) + tl.arange(0, TILE)
    there = i < thrice
    total = _quarter(x, i, there, twice, once, count)
    total += _quarter(x, i + thrice, there & (i + thrice < twice), twice, once, count)
    tl.store(x + i, total, mask=there)


@triton.jit
def total_up(parts, sums, totals, TILE: tl.constexpr):
    """Per part the total of its blocks' ``sums`` (consumed), added by halves until one is left.

    Three halvings at a time. Missing entries count as 0, which changes no sum of squares.
    """
    part = parts + 2 * tl.program_id(0)
    start = tl.load(part)
    count = (tl.load(part + 1) - start).to(tl.int32)
    x = sums + start
    while count > 1:
        once = (count + 1) // 2
        twice = (once + 1) // 2
        thrice = (twice + 1) // 2
        for tile in range(0, thrice, TILE):
            i = tile + tl.arange(0, TILE)
            there = i < thrice
            total = _quarter(x, i, there, twice, once, count)
            total += _quarter(x, i + thrice, there & (i + thrice < twice), twice, once, count)
            tl.store(x + i, total, mask=there)
        tl.debug_barrier()
        count = thrice
    empty = tl.load(part + 1) == start
    tl.store(totals + tl.program_id(0), tl.where(empty, 0.0, tl.load(x, mask=not empty, other=0.0)))


@triton.jit
def _quarter(x, i, there, twice, once, count):
    """Entry ``i`` of ``x`` after two halvings, if it is ``there``."""
    total = _half(x, i, there, once, count)
    return total + _half(x, i + twice, there & (i + twice < once), once, count)


@triton.jit
def _half(x, i, there, once, count):
    total = tl.load(x + i, mask=there, other=0.0)
    return total + tl.load(x + i + once, mask=there & (i + once < count), other=0.0)
