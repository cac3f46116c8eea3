"""Triton kernels for the k-th largest magnitude of every row, or of samples of the rows, and its ties.

A sample of each row gives a guess of the key, the bits of the k-th largest magnitude, that is almost always
too low. Entries that reach the guess are candidates. The key follows from histograms of the candidates'
digits: digits have 8 bits, and the leading digit is first. Candidates that agree with the known digits of the
key are counted by their next digit; the counts of the largest digits determine the key's digit. Counts are
integers, so the order of additions does not change the result.

A row is missed if it has fewer candidates than wanted entries, or more than fit. Its histograms are of all
entries p, and ``blocks.mark`` marks it again. The kernels decide this themselves, so the host need not wait.
"""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import (
    ADDRESS,
    BLOCKS,
    COLUMNS,
    ENTRIES,
    FIRST_BLOCK,
    ITS_GRADIENT,
    NUMBER,
    ROW,
    ROW_COLUMNS,
    SIZE,
    key_of,
    ones,
)
from compressors.kernels.gpu.packing import lowest, marks_of
from compressors.kernels.gpu.searching import p_at

DIGITS: tl.constexpr = tl.constexpr(256)
GUESSED_BITS: tl.constexpr = tl.constexpr(16)  # leading bits of a guess; the others are 0


@triton.jit
def guess(
    rows,
    sizes,
    ranks,
    wanted,
    factor,
    guesses,
    keys,
    left,
    histograms,
    num_rows,
    SAMPLE: tl.constexpr,
    TOP: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """Per row the leading bits of the ``ranks``-th largest key of a sample of its entries p = e + factor g.

    A row of at most ``SAMPLE`` entries is its own sample. The key is 0 for a row with fewer than ``ranks``
    entries. ``TOP`` is the number of a key's highest bit. Also prepares the state before the first digit:
    ``keys`` and ``left`` [ROUNDS + 1, R], and ``histograms`` [ROUNDS, R, DIGITS].
    """
    row = tl.program_id(0)
    tl.store(keys + row, tl.zeros((), keys.dtype.element_ty))
    tl.store(left + row, tl.load(wanted + row))
    for number in tl.static_range(ROUNDS):
        digits = tl.arange(0, DIGITS)
        tl.store(histograms + (number * num_rows + row) * DIGITS + digits, tl.zeros((DIGITS,), tl.int32))
    size, rank = tl.load(sizes + row), tl.load(ranks + row)
    gradient = tl.load(rows + ROW_COLUMNS * row + ITS_GRADIENT)
    kind: tl.constexpr = tl.pointer_type(factor.dtype.element_ty)
    j = tl.arange(0, SAMPLE).to(tl.int64)
    count = tl.minimum(size, SAMPLE)
    there = j < count
    i = j
    if size > SAMPLE:
        # Another place in each of ``SAMPLE`` intervals: with even distances, all could be of one channel.
        i = (j * size + (j * 10127 % SAMPLE) * size // SAMPLE) // SAMPLE
    x = tl.load(tl.load(rows + ROW_COLUMNS * row + ADDRESS).to(kind) + i, mask=there, other=0.0)
    adds = there & (gradient != 0)
    change = tl.load(gradient.to(kind) + i, mask=adds, other=0.0)
    key = key_of(tl.where(adds, tl.fma(change, tl.load(factor), x), x), guesses)
    found = tl.zeros((), key.dtype)
    for bit in tl.static_range(TOP, TOP - GUESSED_BITS, -1):
        trial = found | (tl.full((), 1, key.dtype) << bit)
        reached = tl.sum((there & (key >= trial)).to(tl.int32), 0)
        found = tl.where(reached >= rank, trial, found)
    tl.store(guesses + row, found)


@triton.jit
def gather(pieces, factor, keys, masks, counts, begins, candidates, capacity):
    """Write marked entries' keys to ``candidates``, each piece's from its begin on; at most ``capacity``."""
    piece = pieces + COLUMNS * tl.program_id(0)
    number = tl.load(piece + NUMBER)
    count = tl.load(counts + number)
    if count > 0:
        words = tl.arange(0, 8 * BLOCKS)
        left = marks_of(masks, tl.load(piece + FIRST_BLOCK), tl.load(piece + SIZE))
        marked = ones(left)
        p = tl.load(piece + ENTRIES).to(tl.pointer_type(factor.dtype.element_ty))
        at = tl.load(begins + number) + (tl.cumsum(marked, 0) - marked).to(tl.int64)
        for _ in range(tl.max(marked, 0)):
            there = left != 0
            x = tl.load(p + words * 32 + lowest(left), mask=there, other=0.0)
            tl.store(candidates + at, key_of(x, keys), mask=there & (at < capacity))
            at += there.to(tl.int64)
            left = left & (left - 1)


@triton.jit
def gather_sampled(rows, places, firsts, begins, factor, candidates, tiles, TILE: tl.constexpr):
    """Write the keys of each row's sample to ``candidates``, from the row's begin on.

    p is not computed in place. The sample is at the ``places`` from the row's place in ``firsts`` on; if that
    is negative, it is the row itself. A program works on ``TILE`` entries of a sample.
    """
    row = (tl.program_id(0) // tiles).to(tl.int64)
    j = tl.program_id(0) % tiles * TILE + tl.arange(0, TILE)
    begin, first = tl.load(begins + row), tl.load(firsts + row)
    there = j < tl.load(begins + row + 1) - begin
    i = j
    if first >= 0:
        i = tl.load(places + first + j, mask=there, other=0)
    own = rows + ROW_COLUMNS * row
    x = p_at(tl.load(own + ADDRESS), tl.load(own + ITS_GRADIENT), i, there, factor)
    tl.store(candidates + begin + j, key_of(x, candidates), mask=there)


@triton.jit
def candidates_of(row, row_pieces, begins, capacity, wanted):
    """Begin and end of a row's candidates, and whether the row is missed."""
    begin = tl.load(begins + tl.load(row_pieces + row))
    end = tl.load(begins + tl.load(row_pieces + row + 1))
    return begin, end, (end - begin < tl.load(wanted + row)) | (end > capacity)


@triton.jit
def next_digit(histogram, key, wanted, SHIFT: tl.constexpr):
    """The key with its next digit, and the number of agreeing entries still to be taken."""
    digits = tl.arange(0, DIGITS)
    found = tl.load(histogram + digits)
    at_least = tl.sum(found, 0) - tl.cumsum(found, 0) + found  # entries of this digit or a larger one
    digit = tl.sum((at_least >= wanted).to(tl.int32), 0) - 1
    left = wanted - tl.sum(tl.where(digits > digit, found, 0), 0)
    return key | (digit.to(key.dtype) << SHIFT), left


@triton.jit
def count_digits(
    rows,
    sizes,
    row_pieces,
    wanted,
    begins,
    candidates,
    capacity,
    keys,
    left,
    histograms,
    num_rows,
    programs,
    ROUND: tl.constexpr,
    SHIFT: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Per row a histogram of the next digit of its candidates that agree with the row's known digits.

    ``programs`` work on each row. All of them compute the previous round's digit, and one stores it.
    """
    row, program = (tl.program_id(0) // programs).to(tl.int64), tl.program_id(0) % programs
    begin, end, is_missed = candidates_of(row, row_pieces, begins, capacity, wanted)
    histogram = histograms + (ROUND * num_rows + row) * DIGITS
    if ROUND == 0:
        key = tl.load(keys + row)
    else:
        before = (ROUND - 1) * num_rows + row
        of_before = histogram - num_rows * DIGITS
        key, rest = next_digit(of_before, tl.load(keys + before), tl.load(left + before), SHIFT + WIDTH)
        if program == 0:
            tl.store(keys + before + num_rows, key)
            tl.store(left + before + num_rows, rest)
    source, number = candidates + begin, end - begin
    if is_missed:
        source = tl.load(rows + ROW_COLUMNS * row + ADDRESS).to(candidates.dtype)
        number = tl.load(sizes + row)
    known = key >> (SHIFT + WIDTH)
    counts = tl.zeros((DIGITS,), tl.int32)
    for tile in range(program.to(tl.int64) * TILE, number, programs * TILE):
        i = tile + tl.arange(0, TILE)
        own = key_of(tl.load(source + i, mask=i < number, other=0), candidates)
        digit = ((own >> SHIFT) & (DIGITS - 1 if WIDTH == 8 else 127)).to(tl.int32)
        counts += tl.histogram(digit, DIGITS, mask=(i < number) & ((own >> (SHIFT + WIDTH)) == known))
    tl.atomic_add(histogram + tl.arange(0, DIGITS), counts, mask=counts > 0, sem="relaxed")


@triton.jit
def settle(
    row_pieces, wanted, begins, capacity, keys, left, histograms, missed, num_rows, ROUNDS: tl.constexpr
):
    """Per row its key, the number of its equals to take, and whether it is missed."""
    row = tl.program_id(0)
    _, _, is_missed = candidates_of(row, row_pieces, begins, capacity, wanted)
    tl.store(missed + row, is_missed.to(tl.int32))
    before = (ROUNDS - 1) * num_rows + row
    key, rest = next_digit(histograms + before * DIGITS, tl.load(keys + before), tl.load(left + before), 0)
    tl.store(keys + before + num_rows, key)
    tl.store(left + before + num_rows, rest)


@triton.jit
def compare(pieces, factor, keys, masks, counts, above, equal):
    """Per piece the number of marked entries above their row's key, and the number equal to it."""
    piece = pieces + COLUMNS * tl.program_id(0)
    number = tl.load(piece + NUMBER)
    larger = tl.zeros((8 * BLOCKS,), tl.int32)
    same = tl.zeros((8 * BLOCKS,), tl.int32)
    if tl.load(counts + number) > 0:
        words = tl.arange(0, 8 * BLOCKS)
        left = marks_of(masks, tl.load(piece + FIRST_BLOCK), tl.load(piece + SIZE))
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
def share_ties(row_pieces, first, left, above, equal, begins, TILE: tl.constexpr):
    """Give each row's ``left`` ties to its first pieces.

    ``equal`` becomes the number of ties taken, ``above`` the number of all entries taken, and ``begins`` the
    place of each piece's first entry; a row's entries begin at its place in ``first``.
    """
    row = tl.program_id(0)
    end, wanted = tl.load(row_pieces + row + 1), tl.load(left + row)
    seen, place = tl.zeros((), tl.int32), tl.load(first + row)
    for tile in range(tl.load(row_pieces + row), end, TILE):
        at = tile + tl.arange(0, TILE)
        same = tl.load(equal + at, mask=at < end, other=0)
        before = seen + tl.cumsum(same, 0) - same
        ties = tl.minimum(same, tl.maximum(wanted - before, 0))
        taken = tl.load(above + at, mask=at < end, other=0) + ties
        tl.store(equal + at, ties, mask=at < end)
        tl.store(above + at, taken, mask=at < end)
        tl.store(begins + at, place + (tl.cumsum(taken, 0) - taken), mask=at < end)
        seen += tl.sum(same, 0)
        place += tl.sum(taken, 0)
