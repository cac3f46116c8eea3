"""The second pass of selections: a Triton kernel over the marked entries of each piece."""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import (
    BASE,
    BLOCKS,
    COLUMNS,
    ENTRIES,
    FIRST_BLOCK,
    NUMBER,
    ROW,
    SIZE,
    add_halves,
    add_square,
    key_of,
    ones,
)


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
def lowest(word):
    """Position of the lowest set bit of each uint32; 31 if none is set."""
    return ones(word ^ (word - 1)) - 1


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
