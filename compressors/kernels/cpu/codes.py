"""Compiled packing of codes into bytes, as ``compressors/encoding/packing.py``.

``codes`` are uint8; their length is a multiple of 8, and those after ``size`` are overwritten.
"""

import numpy as np

from compressors.kernels.cpu.compiling import compiled

TERNARY = 3  # kind of packing: five codes in base 3; other kinds are the number of bits of a code
_SPREAD, _ONES = np.uint64(0x8040201008040201), np.uint64(0x0101010101010101)
_GATHER, _SEVENS = np.uint64(0x0102040810204080), np.uint64(0x7F7F7F7F7F7F7F7F)
_BYTE = np.uint64(56)
_DIGITS = np.array([[byte // 3**place % 3 for place in range(5)] for byte in range(256)], dtype=np.uint8)


@compiled
def pack(codes, size, kind, packed):
    """Write ``codes[:size]`` to ``packed``."""
    if kind == 8:
        packed[:size] = codes[:size]
    elif kind == 4:
        codes[size : size + size % 2] = 0
        pairs = codes.view(np.uint16)
        for i in range((size + 1) // 2):
            packed[i] = np.uint8(pairs[i] | pairs[i] >> 4)
    elif kind == 2:
        codes[size : size + -size % 4] = 0
        fours = codes.view(np.uint32)
        for i in range((size + 3) // 4):
            packed[i] = np.uint8(fours[i] | fours[i] >> 6 | fours[i] >> 12 | fours[i] >> 18)
    elif kind == 1:
        codes[size : size + -size % 8] = 0
        eights = codes.view(np.uint64)
        for i in range((size + 7) // 8):
            packed[i] = (eights[i] * _GATHER) >> _BYTE
    else:
        codes[size : size + -size % 5] = 0
        for i in range((size + 4) // 5):
            high = codes[5 * i + 2] + 3 * codes[5 * i + 3] + 9 * codes[5 * i + 4]
            packed[i] = np.uint8(codes[5 * i] + 3 * codes[5 * i + 1] + 9 * high)


@compiled
def unpack(packed, size, kind, codes):
    """Read ``codes[:size]`` from ``packed``."""
    if kind == 8:
        codes[:size] = packed[:size]
    elif kind == 4:
        pairs = codes.view(np.uint16)
        for i in range((size + 1) // 2):
            byte = np.uint16(packed[i])
            pairs[i] = (byte | byte << 4) & 0x0F0F
    elif kind == 2:
        fours = codes.view(np.uint32)
        for i in range((size + 3) // 4):
            byte = np.uint32(packed[i])
            fours[i] = (byte | byte << 6 | byte << 12 | byte << 18) & 0x03030303
    elif kind == 1:
        eights = codes.view(np.uint64)
        for i in range((size + 7) // 8):
            bits = (np.uint64(packed[i]) * _ONES) & _SPREAD
            eights[i] = ((bits + _SEVENS) >> np.uint64(7)) & _ONES
    else:
        for i in range((size + 4) // 5):
            for place in range(5):
                codes[5 * i + place] = _DIGITS[packed[i], place]
