"""Triton kernels for the k-th largest magnitude of every row and its ties, by histograms of digits.

Digits have 8 bits, and the leading digit is first. Entries that agree with the known digits of the key are
counted by their next digit; the counts of the largest digits determine the key's digit. Counts are integers,
so the order of additions does not change the result.
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
)

DIGITS: tl.constexpr = tl.constexpr(256)


@triton.jit
def count_digits(
    pieces,
    factor,
    keys,
    masks,
    counts,
    histogram,
    SHIFT: tl.constexpr,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
    MARKED: tl.constexpr,
):
    """Per row a histogram of the next digit of keys that agree with the row's known digits.

    With ``ADD`` the keys are those of p = e + factor g.
    """
    number = tl.program_id(0)
    piece = pieces + COLUMNS * number
    size, row = tl.load(piece + SIZE).to(tl.int32), tl.load(piece + ROW)
    kind: tl.constexpr = tl.pointer_type(factor.dtype.element_ty)
    p = tl.load(piece + ENTRIES).to(kind)
    if MARKED:
        size = tl.where(tl.load(counts + number) == 0, 0, size)
    if size > 0:
        i = tl.arange(0, 256 * BLOCKS)
        inside = i < size
        if MARKED:
            word = tl.load(masks + tl.load(piece + FIRST_BLOCK) * 8 + i // 32, mask=inside, other=0)
            inside = inside & (((word >> (i % 32)) & 1) != 0)
        x = tl.load(p + i, mask=inside, other=0.0)
        if ADD:
            gradient = tl.load(piece + GRADIENT)
            adds = inside & (gradient != 0)
            change = tl.load(gradient.to(kind) + i, mask=adds, other=0.0)
            x = tl.where(adds, tl.fma(change, tl.load(factor), x), x)
            tl.store(p + i, x, mask=adds)
        key = key_of(x, keys)
        agrees = inside & ((key >> (SHIFT + WIDTH)) == (tl.load(keys + row) >> (SHIFT + WIDTH)))
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
    larger = tl.zeros((), tl.int32)
    same = tl.zeros((), tl.int32)
    if tl.load(counts + number) > 0:
        i = tl.arange(0, 256 * BLOCKS)
        inside = i < tl.load(piece + SIZE)
        word = tl.load(masks + tl.load(piece + FIRST_BLOCK) * 8 + i // 32, mask=inside, other=0)
        inside = inside & (((word >> (i % 32)) & 1) != 0)
        p = tl.load(piece + ENTRIES).to(tl.pointer_type(factor.dtype.element_ty))
        own = key_of(tl.load(p + i, mask=inside, other=0.0), keys)
        key = tl.load(keys + tl.load(piece + ROW))
        larger = tl.sum((inside & (own > key)).to(tl.int32), 0)
        same = tl.sum((inside & (own == key)).to(tl.int32), 0)
    tl.store(above + number, larger)
    tl.store(equal + number, same)


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
