"""Triton kernels that count the magnitudes of p = e + factor g without computing it.

The columns of ``pieces`` are those of ``blocks.py``, the words those of ``parts/magnitudes.py``. A word
counts a limited number of entries, so entries are counted in groups, which are added to the histogram one
after the other: in the groups of the reference, because later sums are rounded.
"""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import BLOCKS, COLUMNS, ENTRIES, GRADIENT, NUMBER, ROW, SIZE
from compressors.kernels.gpu.searching import p_at
from compressors.parts import magnitudes

BINS: tl.constexpr = tl.constexpr(magnitudes.BINS)
COUNT: tl.constexpr = tl.constexpr(magnitudes.COUNT)
ONE: tl.constexpr = tl.constexpr(2**magnitudes.COUNT)  # an entry in the count of a word
ROUNDED: tl.constexpr = tl.constexpr(magnitudes.ROUNDED)
HALF: tl.constexpr = tl.constexpr(2 ** (magnitudes.ROUNDED - 1))
DROPPED: tl.constexpr = tl.constexpr(magnitudes.DROPPED)
FIRST_KEY: tl.constexpr = tl.constexpr(magnitudes.FIRST_KEY)


@triton.jit
def count(pieces, factor, places, groups, words, begin, end, workers):
    """Add the entries of the groups from ``begin`` to ``end`` to ``words`` [groups, W, BINS].

    ``places`` [P] are the pieces' places in ``groups``.
    """
    piece = pieces + COLUMNS * tl.program_id(0)
    group = tl.load(groups + tl.load(places + tl.load(piece + NUMBER)))
    if (group < begin) | (group >= end):
        return
    size = tl.load(piece + SIZE).to(tl.int32)
    entries, gradient = tl.load(piece + ENTRIES), tl.load(piece + GRADIENT)
    own = words + ((group - begin) * workers + tl.load(piece + ROW) % workers) * BINS
    for block in range(BLOCKS):
        i = block * 256 + tl.arange(0, 256)
        inside = i < size
        x = p_at(entries, gradient, i, inside, factor).to(tl.float32)
        bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        key = tl.minimum(tl.maximum((bits >> DROPPED) - FIRST_KEY, 0), BINS - 1)
        mantissa = ((bits & 0x7FFFFF) | 0x800000).to(tl.int64)
        square = (mantissa * mantissa + HALF) >> ROUNDED
        tl.atomic_add(own + key, square + ONE, mask=inside, sem="relaxed")


@triton.jit
def flush(words, scales, counts, squares, number, size, TILE: tl.constexpr):
    """Add the first ``number`` groups of ``words`` [groups, size] to the histogram, one after the other."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    scale = tl.load(scales + i % BINS)
    counted, summed = tl.load(counts + i), tl.load(squares + i)
    own = words + i
    for _ in range(number):
        word = tl.load(own)
        own += size
        counted += (word >> COUNT).to(tl.float64)
        summed += (word & (ONE - 1)).to(tl.float64) * tl.where(
            word == 0, 0.0, scale
        )  # 0 times infinity is NaN
    tl.store(counts + i, counted)
    tl.store(squares + i, summed)
