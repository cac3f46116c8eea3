"""Compiled loops: one pass over memory to add and mark, then a pass over the marked entries.

A *row* is the vector of one worker in one segment. A *piece* is a contiguous part of one layer of a row; the
pieces of a row are consecutive. Squares are summed in the order of ``squared_norm``, so the bits are the
same. The output for a piece depends on this piece alone, so pieces may be divided among threads in any way.
An inlined function must be in the file that uses it: Numba compiles cached code again if its own file
changed, but not if the file of a called function changed.
"""

import numpy as np
from numba import carray, njit, uint64

from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.guessing import largest_key
from compressors.kernels.cpu.machine import (
    at_least,
    fused_multiply_add,
    lowest_bit,
    num_set_bits,
    pointer,
    prefetch,
)

BLOCK, LANES, MASKS = 256, 32, 4  # entries of a block, its partial sums, its masks of 64 bits
ENTRIES, GRADIENT, SIZE, FIRST_BLOCK, ROW, BASE = range(6)  # columns of the table of pieces, see table.py
_BINS = 2**16
_FEW = 8  # marked entries of a block up to which partial sums are recomputed one by one
_MANY = 4  # above this number of marks, one pass computes a block's sums with and without marked entries
AHEAD = 1024  # entries: the hardware prefetcher stops at the end of a page, 1024 fp32 entries


@njit(inline="always")  # takes half the time of a call, because the caller's loops stay in registers
def add_squares(x, start, all_entries, threshold, lanes):
    """Partial sums of a block's squares: of all entries with ``all_entries``, else of unmarked entries."""
    nothing = x.dtype.type(0)
    for lane in range(LANES):
        lanes[lane] = 0.0
    for line in range(BLOCK // LANES):
        for lane in range(LANES):
            entry = x[start + line * LANES + lane]
            wide = np.float64(entry if all_entries or abs(entry) < threshold else nothing)
            lanes[lane] += wide * wide


@njit(inline="always")
def add_both(x, start, threshold, lanes, others):
    """Partial sums of the squares of a block without marked entries and, in ``others``, of all entries."""
    for lane in range(LANES):
        lanes[lane] = others[lane] = 0.0
    for line in range(BLOCK // LANES):
        for lane in range(LANES):
            entry = x[start + line * LANES + lane]
            wide = np.float64(entry)
            square = wide * wide
            others[lane] += square
            lanes[lane] += square if abs(entry) < threshold else 0.0


@njit(inline="always")
def add_halves(lanes):
    """The sum of a block's partial sums, which are consumed."""
    for half in (16, 8, 4, 2, 1):
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
    return lanes[0]


@njit(inline="always")
def add_lane(x, start, lane):
    """One partial sum of squares, of the block at ``start``."""
    total = 0.0
    for line in range(BLOCK // LANES):
        wide = np.float64(x[start + line * LANES + lane])
        total += wide * wide
    return total


@njit(inline="always")
def sum_squares(x, start, all_entries, threshold, lanes):
    """Sum of a block's squares: of all entries with ``all_entries``, else of unmarked entries."""
    add_squares(x, start, all_entries, threshold, lanes)
    return add_halves(lanes)


@njit(inline="always")
def sum_block(x, start, stop, block, like, lanes):
    """The sum of squares of a block of x, padded with zeros in ``block`` if it is the last one.

    ``like`` has the dtype of x.
    """
    if stop - start == BLOCK:
        return sum_squares(x, start, True, like, lanes)
    for i in range(stop - start):
        block[i] = x[start + i]
    block[stop - start :] = 0
    return sum_squares(block, 0, True, like, lanes)


@compiled
def mark(pieces, first, last, workers, factor, thresholds, masks, sums, counts, sums_of_all):
    """Write p = e + factor g over e, and masks of |p| >= threshold; count the marked entries of each piece.

    g of the first of ``workers`` workers becomes 0. ``sums`` are the blocks' sums of squares of unmarked
    entries, and ``sums_of_all`` those of all entries.
    """
    lanes, others = np.empty(LANES), np.empty(LANES)
    block = np.zeros(BLOCK, thresholds.dtype)
    for piece in range(first, last):
        size, to = pieces[piece, SIZE], pieces[piece, FIRST_BLOCK]
        threshold = thresholds[pieces[piece, ROW]]
        p = carray(pointer(pieces[piece, ENTRIES], threshold), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], threshold), (size,))
        adds = pieces[piece, GRADIENT] != 0
        clears = adds and pieces[piece, ROW] % workers == 0
        count = marked = 0
        whole = size // BLOCK * BLOCK
        for start in range(0, whole, BLOCK):
            if start + AHEAD < size:
                prefetch(p, start + AHEAD, BLOCK)
                prefetch(g, start + AHEAD, BLOCK)
            if adds:
                for i in range(start, start + BLOCK):
                    p[i] = fused_multiply_add(g[i], factor, p[i])
            if clears:
                g[start : start + BLOCK] = 0
            many = marked > _MANY  # of the block before, as a prediction for this block
            if many:
                add_both(p, start, threshold, lanes, others)
            else:
                add_squares(p, start, False, threshold, lanes)
            marked = 0
            for quarter in range(MASKS):
                mask = at_least(p, start + 64 * quarter, threshold)
                masks[MASKS * to + quarter] = mask
                marked += num_set_bits(mask)
            if many:
                sums_of_all[to], sums[to] = add_halves(others), add_halves(lanes)
            elif marked == 0:
                sums[to] = sums_of_all[to] = add_halves(lanes)
            else:
                if marked <= _FEW:
                    others[:] = lanes
                    for quarter in range(MASKS):
                        mask = masks[MASKS * to + quarter]
                        while mask != uint64(0):
                            lane = lowest_bit(mask) % LANES
                            others[lane] = add_lane(p, start, lane)
                            mask &= mask - uint64(1)
                else:
                    add_squares(p, start, True, threshold, others)
                sums_of_all[to] = add_halves(others)
                sums[to] = add_halves(lanes)
            count += marked
            to += 1
        if whole < size:  # the last block, padded with zeros
            for i in range(whole, size):
                if adds:
                    p[i] = fused_multiply_add(g[i], factor, p[i])
                block[i - whole] = p[i]
            if clears:
                g[whole:size] = 0
            block[size - whole :] = 0
            sums[to] = sum_squares(block, 0, False, threshold, lanes)
            sums_of_all[to] = sum_squares(block, 0, True, threshold, lanes)
            for quarter in range(MASKS):
                mask = at_least(block, 64 * quarter, threshold)
                inside = size - whole - 64 * quarter
                if inside <= 0:
                    mask = uint64(0)
                elif inside < 64:
                    mask &= (uint64(1) << uint64(inside)) - uint64(1)
                masks[MASKS * to + quarter] = mask
                count += num_set_bits(mask)
        counts[piece] = count


@compiled
def square_marked(pieces, first, last, masks, like, sums):
    """Sums of squares of all entries of the blocks that have marked entries."""
    lanes = np.empty(LANES)
    block = np.zeros(BLOCK)
    for piece in range(first, last):
        size, to = pieces[piece, SIZE], pieces[piece, FIRST_BLOCK]
        x = carray(pointer(pieces[piece, ENTRIES], like), (size,))
        whole = size // BLOCK * BLOCK
        for start in range(0, whole, BLOCK):
            marked = uint64(0)
            for quarter in range(MASKS):
                marked |= masks[MASKS * to + quarter]
            if marked != uint64(0):
                sums[to] = sum_squares(x, start, True, like, lanes)
            to += 1
        if whole < size:
            sums[to] = sum_block(x, whole, size, block, like, lanes)


@njit(inline="always")
def mark_zeros(size, at, most, masks):
    """Mark the first unmarked entries of a piece of ``size`` entries, up to ``most``; returns their number.

    ``at`` is the position of the piece's first mask.
    """
    count = 0
    for position in range((size + 63) // 64):
        if count == most:
            break
        inside = size - 64 * position
        unmarked = ~masks[at + position]
        if inside < 64:
            unmarked &= (uint64(1) << uint64(inside)) - uint64(1)
        while unmarked != uint64(0) and count < most:
            masks[at + position] |= uint64(1) << uint64(lowest_bit(unmarked))
            unmarked &= unmarked - uint64(1)
            count += 1
    return count


@compiled
def refine_thresholds(
    pieces,
    row_pieces,
    first,
    last,
    wanted,
    magnitude,
    thresholds,
    masks,
    sums,
    counts,
    sums_of_all,
    keys,
    ties,
):
    """Per row the ``wanted``-th largest magnitude, and per piece the number of its ties that are taken.

    Ties go to the lowest index. Rows whose guessed threshold was too high are marked again. ``counts`` become
    the numbers of entries taken. No threshold is 0: zeros are marked only here, and no more than are taken,
    because most entries of an embedding's gradient are zeros.
    """
    histogram = np.empty(256, np.int64)
    bits_of_thresholds = thresholds.view(magnitude.dtype)
    for row in range(first, last):
        begin, end = row_pieces[row], row_pieces[row + 1]
        total = counts[begin:end].sum()
        if total < wanted[row] and bits_of_thresholds[row] > 1:
            bins = np.zeros(_BINS, np.int64)  # by the leading 16 bits of the magnitudes
            shift = uint64(8 * magnitude.itemsize - 17)
            for piece in range(begin, end):
                bits = carray(pointer(pieces[piece, ENTRIES], magnitude[0]), (pieces[piece, SIZE],))
                for i in range(len(bits)):
                    bins[uint64(bits[i] & magnitude[0]) >> shift] += 1
            leading, above = _BINS - 1, bins[_BINS - 1]
            while above < wanted[row]:
                leading -= 1
                above += bins[leading]
            bits_of_thresholds[row] = max(uint64(1), uint64(leading) << shift)
            added = pieces[begin:end].copy()
            added[:, GRADIENT] = 0
            own = counts[begin:end]
            mark(
                added,
                np.int64(0),
                end - begin,
                np.int64(1),
                thresholds[row],
                thresholds,
                masks,
                sums,
                own,
                sums_of_all,
            )
            total = own.sum()
        if total < wanted[row]:
            keys[row], left = 0, wanted[row] - total
            for piece in range(begin, end):
                ties[piece] = mark_zeros(pieces[piece, SIZE], MASKS * pieces[piece, FIRST_BLOCK], left, masks)
                counts[piece] += ties[piece]
                left -= ties[piece]
            continue
        if total == wanted[row]:
            keys[row] = 0
            ties[begin:end] = counts[begin:end]
            continue
        candidates = np.empty(total, magnitude.dtype)
        seen = 0
        for piece in range(begin, end):
            bits = carray(pointer(pieces[piece, ENTRIES], magnitude[0]), (pieces[piece, SIZE],))
            at = MASKS * pieces[piece, FIRST_BLOCK]
            for position in range((len(bits) + 63) // 64):
                mask = masks[at + position]
                while mask != uint64(0):
                    candidates[seen] = bits[64 * position + lowest_bit(mask)] & magnitude[0]
                    mask &= mask - uint64(1)
                    seen += 1
        keys[row], left = largest_key(candidates.copy(), total, wanted[row], histogram)
        seen = 0
        for piece in range(begin, end):
            above, equal = 0, 0
            for i in range(seen, seen + counts[piece]):
                above += candidates[i] > keys[row]
                equal += candidates[i] == keys[row]
            seen += counts[piece]
            ties[piece] = min(left, equal)
            left -= ties[piece]
            counts[piece] = above + ties[piece]


@compiled
def pack_largest(
    pieces, first, last, offsets, magnitude, thresholds, masks, sums, keys, ties, values, indices
):
    """``pack`` what ``refine_thresholds`` selected; recompute sums of blocks where marked entries stay."""
    lanes = np.empty(LANES)
    block = np.zeros(BLOCK, thresholds.dtype)
    for piece in range(first, last):
        size, to, left = pieces[piece, SIZE], offsets[piece], ties[piece]
        key = keys[pieces[piece, ROW]]
        p = carray(pointer(pieces[piece, ENTRIES], thresholds[0]), (size,))
        bits = carray(pointer(pieces[piece, ENTRIES], magnitude[0]), (size,))
        number = pieces[piece, FIRST_BLOCK]
        for start in range(0, size, BLOCK):
            stays = False
            for quarter in range(MASKS):
                mask = masks[MASKS * number + quarter]
                while mask != uint64(0):
                    i = start + 64 * quarter + lowest_bit(mask)
                    mask &= mask - uint64(1)
                    own = bits[i] & magnitude[0]
                    if own > key or (own == key and left > 0):
                        left -= own == key
                        values[to] = p[i]
                        indices[to] = pieces[piece, BASE] + i
                        p[i] = 0
                        to += 1
                    else:
                        stays = True
            if stays:
                if start + BLOCK <= size:
                    sums[number] = sum_squares(p, start, True, thresholds[0], lanes)
                else:
                    for i in range(size - start):
                        block[i] = p[start + i]
                    block[size - start :] = 0
                    sums[number] = sum_squares(block, 0, True, thresholds[0], lanes)
            number += 1


@njit(inline="always")
def move_drawn(p, base, stop, positions, at, rotation, values):
    """Move entries of p, which starts at ``base``, from position ``at`` to ``stop`` to ``values``.

    Returns the next position.
    """
    count = len(positions)
    while at < count and positions[at] < base + stop:
        i = positions[at] - base
        values[(at + rotation) % count] = p[i]
        p[i] = 0
        at += 1
    return at


@compiled
def take(pieces, first, last, workers, factor, drawn, draws, values, sums, counts, sums_of_all):
    """Write p = e + factor g over e; move entries at the positions drawn for their row to ``values``.

    g of the first of ``workers`` workers becomes 0. ``draws`` has, per row, the start of its ascending
    positions and of its values, their number, and the rotation of the values. Sums are over entries that
    stay; in ``sums_of_all``, over all entries.
    """
    lanes, others = np.empty(LANES), np.empty(LANES)
    block = np.zeros(BLOCK, values.dtype)
    for piece in range(first, last):
        size, row, base = pieces[piece, SIZE], pieces[piece, ROW], pieces[piece, BASE]
        p = carray(pointer(pieces[piece, ENTRIES], factor), (size,))
        g = carray(pointer(pieces[piece, GRADIENT], factor), (size,))
        adds = pieces[piece, GRADIENT] != 0
        clears = adds and row % workers == 0
        count, rotation = draws[row, 2], draws[row, 3]
        positions = drawn[draws[row, 0] : draws[row, 0] + count]
        own = values[draws[row, 1] : draws[row, 1] + count]
        begin = np.searchsorted(positions, base)
        at, number = begin, pieces[piece, FIRST_BLOCK]
        whole = size // BLOCK * BLOCK
        for start in range(0, whole, BLOCK):
            if start + AHEAD < size:
                prefetch(p, start + AHEAD, BLOCK)
                prefetch(g, start + AHEAD, BLOCK)
            if adds:
                for i in range(start, start + BLOCK):
                    p[i] = fused_multiply_add(g[i], factor, p[i])
            if clears:
                g[start : start + BLOCK] = 0
            add_squares(p, start, True, factor, lanes)
            others[:] = lanes
            sums_of_all[number] = add_halves(others)
            before = at
            at = move_drawn(p, base, start + BLOCK, positions, at, rotation, own)
            if at == before:
                sums[number] = sums_of_all[number]
            elif at - before <= _FEW:
                for taken in range(before, at):
                    lane = (positions[taken] - base) % LANES
                    lanes[lane] = add_lane(p, start, lane)
                sums[number] = add_halves(lanes)
            else:
                sums[number] = sum_squares(p, start, True, factor, lanes)
            number += 1
        if whole < size:
            if adds:
                for i in range(whole, size):
                    p[i] = fused_multiply_add(g[i], factor, p[i])
            if clears:
                g[whole:size] = 0
            sums_of_all[number] = sum_block(p, whole, size, block, factor, lanes)
            before = at
            at = move_drawn(p, base, size, positions, at, rotation, own)
            sums[number] = (
                sums_of_all[number] if at == before else sum_block(p, whole, size, block, factor, lanes)
            )
        counts[piece] = at - begin
