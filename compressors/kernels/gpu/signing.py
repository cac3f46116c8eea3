"""Triton kernel for signs of large entries: ``strom.py``."""

import triton
import triton.language as tl

from compressors.kernels.gpu.blocks import BASE, BLOCKS, COLUMNS, ENTRIES, NUMBER, ROW, SIZE, key_of


@triton.jit
def pack_signs(pieces, thresholds, keys, counts, begins, words):
    """Write 2 position + (p < 0) of each entry whose key is at least its row's, each piece's from its begin
    on, and subtract sign times threshold. ``keys`` are those of ``thresholds`` [R]."""
    piece = pieces + COLUMNS * tl.program_id(0)
    number = tl.load(piece + NUMBER)
    if tl.load(counts + number) > 0:
        size, row = tl.load(piece + SIZE).to(tl.int32), tl.load(piece + ROW)
        i = tl.arange(0, BLOCKS * 256)
        p = tl.load(piece + ENTRIES).to(tl.pointer_type(thresholds.dtype.element_ty)) + i
        x = tl.load(p, mask=i < size, other=0.0)
        marked = (i < size) & (key_of(x, keys) >= tl.load(keys + row))
        at = tl.load(begins + number) + tl.cumsum(marked.to(tl.int32), 0) - 1
        word = 2 * (tl.load(piece + BASE) + i) + (x < 0.0).to(tl.int64)
        tl.store(words + at, word.to(tl.int32), mask=marked)
        threshold = tl.load(thresholds + row)
        tl.store(p, x - tl.where(x < 0.0, -threshold, threshold), mask=marked)
