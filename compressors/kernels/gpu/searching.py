"""Triton kernels over p = e + factor g without computing it in place: large entries.

The columns of ``pieces`` are those of ``blocks.py``.
"""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import BASE, BLOCKS, COLUMNS, ENTRIES, GRADIENT, NUMBER, ROW, SIZE


@triton.jit
def p_at(entries, gradient, i, inside, factor):
    """Entries ``i`` of p, from the addresses of e and of g or 0; 0 where not ``inside``."""
    kind: tl.constexpr = tl.pointer_type(factor.dtype.element_ty)
    x = tl.load(entries.to(kind) + i, mask=inside, other=0.0)
    adds = inside & (gradient != 0)
    change = tl.load(gradient.to(kind) + i, mask=adds, other=0.0)
    return tl.where(adds, tl.fma(change, tl.load(factor), x), x)


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
