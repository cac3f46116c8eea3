"""Compiled loops of ``compressors.encoding.index_codes``, with the same bytes and errors."""

import numpy as np
from numba import uint8, uint64

from compressors.encoding.index_codes import BadMessageError, IndexCodes, low_bytes
from compressors.kernels.cpu.compiling import compiled
from compressors.kernels.cpu.machine import lowest_bit, num_set_bits

BLOCK = 256
_TOO_FAR, _TOO_MANY, _PADDING = -1, -2, -3
_REASONS = {
    _TOO_FAR: "a position lies beyond the last element",
    _TOO_MANY: "the number of gaps differs from the number of entries",
    _PADDING: "unused bits are set",
}


class CompiledIndexCodes(IndexCodes):
    """The codes by Numba's loops."""

    def widths(self, positions: np.ndarray) -> tuple[np.ndarray, int]:
        widths = np.empty(-(-len(positions) // BLOCK), dtype=np.uint8)
        return widths, (choose_widths(positions, widths) + 7) // 8

    def rice(
        self, positions: np.ndarray, widths: np.ndarray, unary_bytes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        low = np.zeros(low_bytes(widths, len(positions)), dtype=np.uint8)
        unary = np.zeros(unary_bytes, dtype=np.uint8)
        write_rice(positions, widths, low, unary)
        return low, unary

    def unrice(self, low: np.ndarray, unary: np.ndarray, widths: np.ndarray, k: int, size: int) -> np.ndarray:
        positions = np.empty(k, dtype=np.int64)
        outcome = read_rice(low, unary, widths, size, positions)
        if outcome < 0:
            raise BadMessageError(_REASONS[outcome])
        return positions

    def bitmap(self, positions: np.ndarray, size: int) -> np.ndarray:
        words = np.zeros(-(-size // 64), dtype=np.uint64)
        write_bitmap(positions, words)
        return words.view(np.uint8)[: -(-size // 8)]

    def unbitmap(self, packed: np.ndarray, k: int, size: int) -> np.ndarray:
        words = np.zeros(-(-len(packed) // 8), dtype=np.uint64)
        words.view(np.uint8)[: len(packed)] = packed
        found = count_bits(words)
        if found != k:
            raise BadMessageError(f"the bitmap marks {found} entries, {k} were announced")
        positions = np.empty(k, dtype=np.int64)
        read_bitmap(words, positions)
        if k and positions[-1] >= size:
            raise BadMessageError(_REASONS[_TOO_FAR])
        return positions

    def add_at(self, values: np.ndarray, positions: np.ndarray, out: np.ndarray) -> None:
        add_entries(values, positions, out)


@compiled
def choose_widths(positions, widths):
    """Fill ``widths``; returns the number of bits of the unary part."""
    before, bits = -1, 0
    for block in range(len(widths)):
        start = block * BLOCK
        stop = min(len(positions), start + BLOCK)
        count = stop - start
        mean = (positions[stop - 1] - before - count) // count
        most = 0
        while mean >> (most + 1):
            most += 1
        fewer = max(most - 1, 0)
        unary, more_unary = 0, 0
        for i in range(start, stop):
            gap = positions[i] - before - 1
            before = positions[i]
            unary += gap >> most
            more_unary += gap >> fewer
        if count * most + unary <= count * fewer + more_unary:
            widths[block] = most
            bits += count + unary
        else:
            widths[block] = fewer
            bits += count + more_unary
    return bits


@compiled
def write_rice(positions, widths, low, unary):
    """Fill ``low`` and ``unary``, which must be zero."""
    before, end, to = -1, -1, 0
    for block in range(len(widths)):
        start = block * BLOCK
        stop = min(len(positions), start + BLOCK)
        width = np.int64(widths[block])
        mask = (uint64(1) << uint64(width)) - uint64(1)
        waiting, num_waiting = uint64(0), 0
        for i in range(start, stop):
            gap = positions[i] - before - 1
            before = positions[i]
            end += (gap >> width) + 1
            unary[end >> 3] |= uint8(1 << (end & 7))
            waiting |= (uint64(gap) & mask) << uint64(num_waiting)
            num_waiting += width
            while num_waiting >= 8:
                low[to] = uint8(waiting & uint64(255))
                waiting >>= uint64(8)
                num_waiting -= 8
                to += 1
        if num_waiting:
            low[to] = uint8(waiting & uint64(255))
            to += 1


@compiled
def read_rice(low, unary, widths, size, positions):
    """Fill ``positions``; returns a negative number for bytes that ``write_rice`` cannot write."""
    k, found, before, end, at = len(positions), 0, -1, -1, 0
    waiting, num_waiting, width = uint64(0), 0, 0
    mask = uint64(0)
    for byte in range(len(unary)):
        bits = uint64(unary[byte])
        while bits != uint64(0):
            one = 8 * byte + lowest_bit(bits)
            bits &= bits - uint64(1)
            if found == k:
                return _TOO_MANY
            if found % BLOCK == 0:
                if waiting != uint64(0):
                    return _PADDING
                num_waiting = 0
                width = np.int64(widths[found // BLOCK])
                mask = (uint64(1) << uint64(width)) - uint64(1)
            high = one - end - 1
            end = one
            if high > size >> width:
                return _TOO_FAR
            while num_waiting < width:
                waiting |= uint64(low[at]) << uint64(num_waiting)
                num_waiting += 8
                at += 1
            gap = (high << width) | np.int64(waiting & mask)
            waiting >>= uint64(width)
            num_waiting -= width
            before += gap + 1
            if before >= size:
                return _TOO_FAR
            positions[found] = before
            found += 1
    if found != k or (len(unary) and unary[-1] == 0):
        return _TOO_MANY
    if waiting != uint64(0):
        return _PADDING
    return found


@compiled
def write_bitmap(positions, words):
    for i in range(len(positions)):
        words[positions[i] >> 6] |= uint64(1) << uint64(positions[i] & 63)


@compiled
def count_bits(words):
    total = 0
    for word in words:
        total += num_set_bits(word)
    return total


@compiled
def read_bitmap(words, positions):
    found = 0
    for number in range(len(words)):
        word = words[number]
        while word != uint64(0):
            positions[found] = 64 * number + lowest_bit(word)
            word &= word - uint64(1)
            found += 1


@compiled
def add_entries(values, positions, out):
    for i in range(len(values)):
        out[positions[i]] += values[i]
