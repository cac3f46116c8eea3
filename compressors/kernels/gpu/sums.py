"""Triton kernels for final sums in the order of ``squared_norm``, running totals, and sums of rows and of
sent entries."""

import triton
import triton.language as tl


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


@triton.jit
def add_rows(values, out, num_rows, size, TILE: tl.constexpr):
    """Write the sum of the rows of ``values`` [R k], in order, to ``out`` [k]."""
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    at = values + i
    total = tl.load(at, mask=i < size, other=0.0)
    for _ in range(1, num_rows):
        at += size
        total += tl.load(at, mask=i < size, other=0.0)
    tl.store(out + i, total, mask=i < size)


@triton.jit
def add_sent(sent, values, indices, total, tiles, TILE: tl.constexpr):
    """Add one worker's sent entries of all segments, which are distinct, to ``total``.

    ``sent`` has, per segment, the start of its entries, their number, and its start in ``total``.
    """
    segment = sent + 3 * (tl.program_id(0) // tiles)
    j = tl.program_id(0) % tiles * TILE + tl.arange(0, TILE)
    there = j < tl.load(segment + 1)
    begin = tl.load(segment)
    at = total + tl.load(segment + 2) + tl.load(indices + begin + j, mask=there, other=0)
    x = tl.load(at, mask=there, other=0.0) + tl.load(values + begin + j, mask=there, other=0.0)
    tl.store(at, x, mask=there)
