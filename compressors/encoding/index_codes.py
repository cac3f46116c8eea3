"""Codes of ascending positions: the NumPy definition, which the kernels follow byte for byte.

Two codes. A *bitmap* has a bit for each of D positions. *Rice*'s code (Rice, 1979, JPL publication 79-22;
Golomb, 1966, https://doi.org/10.1109/TIT.1966.1053907) represents the gap between two positions, minus one,
by its w lowest bits and the quotient in unary: as many zeros, then a one. w is chosen for every 256 gaps,
because densities differ between layers. For random gaps it takes 11.52 bits per position at density 0.1 %,
where the entropy is 11.41. The lowest bits of all gaps are stored together, and so are the unary parts, so
decoding need not test every bit. Bits fill bytes from the lowest bit on; each block begins at a byte
boundary.
"""

import numpy as np

BLOCK = 256  # gaps that share a width
WIDEST = 48  # bits, for gaps up to 2^48


class BadMessageError(ValueError):
    """Raised for bytes that no encoder writes."""


class IndexCodes:
    """The codes in NumPy. Positions are ascending, [k] int64."""

    def widths(self, positions: np.ndarray) -> tuple[np.ndarray, int]:
        """Per block of gaps the width in bits, [B] uint8, and the bytes of the unary part.

        The width is floor(log2(mean gap)) or one less: the one with fewer bits, the larger one in a tie.
        """
        k = len(positions)
        if k == 0:
            return np.empty(0, dtype=np.uint8), 0
        gaps, starts = _gaps(positions), np.arange(0, k, BLOCK)
        sizes = np.diff(starts, append=k)
        mean = np.add.reduceat(gaps, starts) // sizes
        most = np.maximum(_bit_length(mean) - 1, 0)
        fewer = np.maximum(most - 1, 0)
        unary = [np.add.reduceat(gaps >> w.repeat(sizes), starts) for w in (most, fewer)]
        takes_most = sizes * most + unary[0] <= sizes * fewer + unary[1]
        widths = np.where(takes_most, most, fewer).astype(np.uint8)
        return widths, (k + int(np.where(takes_most, *unary).sum()) + 7) // 8

    def rice(
        self, positions: np.ndarray, widths: np.ndarray, unary_bytes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The lowest bits and the unary parts, [...] uint8 each."""
        k, gaps = len(positions), _gaps(positions)
        own = widths.astype(np.int64).repeat(BLOCK)[:k]
        ends = np.cumsum((gaps >> own) + 1) - 1  # positions of the ones
        bits = np.zeros(8 * unary_bytes, dtype=np.uint8)
        bits[ends] = 1
        lowest = np.zeros(BLOCK * len(widths), dtype=np.int64)
        lowest[:k] = gaps & ((1 << own) - 1)
        starts, size = _starts(widths, k)
        low = np.zeros(size + 32 * WIDEST, dtype=np.uint8)  # a last block that is not full is cut off
        for width, which in _by_width(widths):
            entries = lowest.reshape(-1, BLOCK)[which]
            digits = (entries[:, :, None] >> np.arange(width)) & 1
            packed = np.packbits(digits.astype(np.uint8).reshape(len(which), -1), axis=1, bitorder="little")
            low[starts[which][:, None] + np.arange(32 * width)] = packed
        return low[:size], np.packbits(bits, bitorder="little")

    def unrice(self, low: np.ndarray, unary: np.ndarray, widths: np.ndarray, k: int, size: int) -> np.ndarray:
        """The positions in ``range(size)``, [k]; ``low`` must have the length given by ``widths``.

        Raises ``BadMessageError``.
        """
        ends = np.flatnonzero(np.unpackbits(unary, bitorder="little"))
        if len(ends) != k or (len(unary) and unary[-1] == 0):
            raise BadMessageError("the number of gaps differs from the number of entries")
        own = widths.astype(np.int64).repeat(BLOCK)[:k]
        high = np.diff(ends, prepend=-1) - 1
        if (high > size >> own).any():
            raise BadMessageError("a position lies beyond the last element")
        starts, _ = _starts(widths, k)
        padded = np.concatenate([low, np.zeros(32 * WIDEST, dtype=np.uint8)])
        lowest = np.zeros((len(widths), BLOCK), dtype=np.int64)
        for width, which in _by_width(widths):
            packed = padded[starts[which][:, None] + np.arange(32 * width)]
            bits = np.unpackbits(packed, axis=1, bitorder="little").reshape(len(which), BLOCK, width)
            lowest[which] = bits.astype(np.int64) @ (1 << np.arange(width))
        digits = lowest.ravel()
        if digits[k:].any():
            raise BadMessageError("unused bits are set")
        positions = np.cumsum(((high << own) | digits[:k]) + 1) - 1
        if (positions >= size).any():
            raise BadMessageError("a position lies beyond the last element")
        return positions

    def bitmap(self, positions: np.ndarray, size: int) -> np.ndarray:
        """A bit for each of ``size`` positions, [ceil(size / 8)] uint8."""
        bits = np.zeros(size, dtype=np.bool_)
        bits[positions] = True
        return np.packbits(bits, bitorder="little")

    def unbitmap(self, packed: np.ndarray, k: int, size: int) -> np.ndarray:
        """The k positions in ``range(size)``; raises ``BadMessageError``."""
        positions = np.flatnonzero(np.unpackbits(packed, bitorder="little"))
        if len(positions) != k:
            raise BadMessageError(f"the bitmap marks {len(positions)} entries, {k} were announced")
        if k and positions[-1] >= size:
            raise BadMessageError("a position lies beyond the last element")
        return positions

    def add_at(self, values: np.ndarray, positions: np.ndarray, out: np.ndarray) -> None:
        """Add ``values`` to ``out`` at distinct ``positions``."""
        out[positions] += values


def low_bytes(widths: np.ndarray, k: int) -> int:
    """Number of bytes for the lowest bits of k gaps."""
    return _starts(widths, k)[1]


def _starts(widths: np.ndarray, k: int) -> tuple[np.ndarray, int]:
    """Start of each block's lowest bits, [B] int64, and the end of the last block, in bytes."""
    starts = np.zeros(len(widths) + 1, dtype=np.int64)
    np.cumsum(32 * widths.astype(np.int64), out=starts[1:])
    if len(widths) == 0:
        return starts[:-1], 0
    last = k - BLOCK * (len(widths) - 1)
    return starts[:-1], int(starts[-2]) + (last * int(widths[-1]) + 7) // 8


def _by_width(widths: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Every width above 0, with the blocks of this width."""
    return [(int(width), np.flatnonzero(widths == width)) for width in np.unique(widths) if width]


def _gaps(positions: np.ndarray) -> np.ndarray:
    return np.diff(positions, prepend=-1) - 1


def _bit_length(numbers: np.ndarray) -> np.ndarray:
    """Bit lengths of integers from 0 to 2^53."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)
