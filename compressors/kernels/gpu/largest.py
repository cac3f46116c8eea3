"""Triton kernels for the k-th largest magnitude of every row and its ties.

A sample of each row gives a guess of the key, the bits of the k-th largest magnitude, that is almost always
too low. Entries that reach the guess are candidates. The key follows from histograms of the candidates'
digits: digits have 8 bits, and the leading digit is first. Candidates that agree with the known digits of the
key are counted by their next digit; the counts of the largest digits determine the key's digit. Counts are
integers, so the order of additions does not change the result.
"""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import (
    BLOCKS,
    COLUMNS,
    ENTRIES,
    FIRST_BLOCK,
    GRADIENT,
    ROW,
    SIZE,
    key_of,
    lowest,
    ones,
)

DIGITS: tl.constexpr = tl.constexpr(256)
GUESSED_BITS: tl.constexpr = tl.constexpr(16)  # leading bits of a guess; the others are 0


@triton.jit
def guess(pieces, row_pieces, sizes, ranks, factor, keys, SAMPLE: tl.constexpr, TOP: tl.constexpr):
    """Per row the leading bits of the ``ranks``-th largest key of a sample of its entries p = e + factor g.

    A row of at most ``SAMPLE`` entries is its own sample. The key is 0 for a row with fewer than ``ranks``
    entries. ``TOP`` is the number of a key's highest bit.
    """
    row = tl.program_id(0)
    piece = pieces + COLUMNS * tl.load(row_pieces + row)
    size, rank = tl.load(sizes + row), tl.load(ranks + row)
    gradient = tl.load(piece + GRADIENT)
    kind: tl.constexpr = tl.pointer_type(factor.dtype.element_ty)
    j = tl.arange(0, SAMPLE).to(tl.int64)
    count = tl.minimum(size, SAMPLE)
    there = j < count
    i = j
    if size > SAMPLE:
        # Another place in each of ``SAMPLE`` intervals: with even distances, all could be of one channel.
        i = (j * size + (j * 10127 % SAMPLE) * size // SAMPLE) // SAMPLE
    x = tl.load(tl.load(piece + ENTRIES).to(kind) + i, mask=there, other=0.0)
    adds = there & (gradient != 0)
    change = tl.load(gradient.to(kind) + i, mask=adds, other=0.0)
    key = key_of(tl.where(adds, tl.fma(change, tl.load(factor), x), x), keys)
    found = tl.zeros((), key.dtype)
    for bit in tl.static_range(TOP, TOP - GUESSED_BITS, -1):
        trial = found | (tl.full((), 1, key.dtype) << bit)
        reached = tl.sum((there & (key >= trial)).to(tl.int32), 0)
        found = tl.where(reached >= rank, trial, found)
    tl.store(keys + row, found)


@triton.jit
def gather(pieces, factor, keys, masks, counts, ends, candidates, capacity):
    """Write marked entries' keys to ``candidates``, each piece's up to its end; at most ``capacity``."""
    number = tl.program_id(0)
    piece = pieces + COLUMNS * number
    count = tl.load(counts + number)
    if count > 0:
        words = tl.arange(0, 8 * BLOCKS)
        inside = words * 32 < tl.load(piece + SIZE)
        word = tl.load(masks + tl.load(piece + FIRST_BLOCK) * 8 + words, mask=inside, other=0)
        left = word.to(tl.uint32, bitcast=True)
        marked = ones(left)
        p = tl.load(piece + ENTRIES).to(tl.pointer_type(factor.dtype.element_ty))
        at = tl.load(ends + number) - count + (tl.cumsum(marked, 0) - marked).to(tl.int64)
        for _ in range(tl.max(marked, 0)):
            there = left != 0
            x = tl.load(p + words * 32 + lowest(left), mask=there, other=0.0)
            tl.store(candidates + at, key_of(x, keys), mask=there & (at < capacity))
            at += there.to(tl.int64)
            left = left & (left - 1)


@triton.jit
def count_candidates(
    candidates,
    capacity,
    row_pieces,
    ends,
    keys,
    histogram,
    programs,
    SHIFT: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Per row a histogram of the next digit of its candidates that agree with the row's known digits.

    ``programs`` work on each row.
    """
    row = (tl.program_id(0) // programs).to(tl.int64)
    first, last = tl.load(row_pieces + row), tl.load(row_pieces + row + 1)
    begin = tl.load(ends + first - 1, mask=first > 0, other=0)
    end = tl.minimum(tl.load(ends + last - 1), capacity)
    known = tl.load(keys + row) >> (SHIFT + WIDTH)
    counts = tl.zeros((DIGITS,), tl.int32)
    for tile in range(begin + tl.program_id(0) % programs * TILE, end, programs * TILE):
        i = tile + tl.arange(0, TILE)
        key = tl.load(candidates + i, mask=i < end, other=0)
        digit = ((key >> SHIFT) & (DIGITS - 1 if WIDTH == 8 else 127)).to(tl.int32)
        counts += tl.histogram(digit, DIGITS, mask=(i < end) & ((key >> (SHIFT + WIDTH)) == known))
    digits = tl.arange(0, DIGITS)
    tl.atomic_add(histogram + row * DIGITS + digits, counts, mask=counts > 0, sem="relaxed")


@triton.jit
def count_digits(pieces, factor, keys, histogram, SHIFT: tl.constexpr, WIDTH: tl.constexpr):
    """The same of all entries p, for rows whose guess was too high or far too low."""
    piece = pieces + COLUMNS * tl.program_id(0)
    size, row = tl.load(piece + SIZE).to(tl.int32), tl.load(piece + ROW)
    p = tl.load(piece + ENTRIES).to(tl.pointer_type(factor.dtype.element_ty))
    if size > 0:
        i = tl.arange(0, 256 * BLOCKS)
        key = key_of(tl.load(p + i, mask=i < size, other=0.0), keys)
        agrees = (i < size) & ((key >> (SHIFT + WIDTH)) == (tl.load(keys + row) >> (SHIFT + WIDTH)))
        digit = ((key >> SHIFT) & (DIGITS - 1 if WIDTH == 8 else 127)).to(tl.int32)
        found = tl.histogram(digit, DIGITS, mask=agrees)
        tl.atomic_add(histogram + row * DIGITS + tl.arange(0, DIGITS), found, mask=found > 0, sem="relaxed")


@triton.jit
def choose_digit(histogram, keys, left, SHIFT: tl.constexpr):
    """Per row the next digit of the key, and the number of agreeing entries still to be taken.

    The histogram is zero again afterwards.
    """
    row = tl.program_id(0).to(tl.int64)
    digits = tl.arange(0, DIGITS)
    found = tl.load(histogram + row * DIGITS + digits)
    tl.store(histogram + row * DIGITS + digits, tl.zeros_like(found))
    wanted = tl.load(left + row)
    at_least = tl.sum(found, 0) - tl.cumsum(found, 0) + found  # entries of this digit or a larger one
    digit = tl.sum((at_least >= wanted).to(tl.int32), 0) - 1
    tl.store(left + row, wanted - tl.sum(tl.where(digits > digit, found, 0), 0))
    key = tl.load(keys + row)
    tl.store(keys + row, key | (digit.to(key.dtype) << SHIFT))


@triton.jit
def compare(pieces, factor, keys, masks, counts, above, equal):
    """Per piece the number of marked entries above their row's key, and the number equal to it."""
    number = tl.program_id(0)
    piece = pieces + COLUMNS * number
    larger = tl.zeros((8 * BLOCKS,), tl.int32)
    same = tl.zeros((8 * BLOCKS,), tl.int32)
    if tl.load(counts + number) > 0:
        words = tl.arange(0, 8 * BLOCKS)
        inside = words * 32 < tl.load(piece + SIZE)
        word = tl.load(masks + tl.load(piece + FIRST_BLOCK) * 8 + words, mask=inside, other=0)
        left = word.to(tl.uint32, bitcast=True)
        p = tl.load(piece + ENTRIES).to(tl.pointer_type(factor.dtype.element_ty))
        key = tl.load(keys + tl.load(piece + ROW))
        for _ in range(tl.max(ones(left), 0)):
            there = left != 0
            own = key_of(tl.load(p + words * 32 + lowest(left), mask=there, other=0.0), keys)
            larger += (there & (own > key)).to(tl.int32)
            same += (there & (own == key)).to(tl.int32)
            left = left & (left - 1)
    tl.store(above + number, tl.sum(larger, 0))
    tl.store(equal + number, tl.sum(same, 0))


@triton.jit
def share_ties(row_pieces, left, above, equal, TILE: tl.constexpr):
    """Give each row's ``left`` ties to its first pieces.

    ``equal`` becomes the number of ties taken, and ``above`` the number of all entries taken.
    """
    row = tl.program_id(0)
    end, wanted = tl.load(row_pieces + row + 1), tl.load(left + row)
    seen = tl.zeros((), tl.int32)
    for tile in range(tl.load(row_pieces + row), end, TILE):
        at = tile + tl.arange(0, TILE)
        same = tl.load(equal + at, mask=at < end, other=0)
        before = seen + tl.cumsum(same, 0) - same
        ties = tl.minimum(same, tl.maximum(wanted - before, 0))
        tl.store(equal + at, ties, mask=at < end)
        tl.store(above + at, tl.load(above + at, mask=at < end, other=0) + ties, mask=at < end)
        seen += tl.sum(same, 0)
