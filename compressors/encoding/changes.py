"""Encoded changes of a vector of words: where bit patterns differ, and by how much.

A word is the bit pattern of an element as a signed number, so the code is exact for every dtype, NaN and -0.0
included. For each ``CHUNK`` of words:

| part | bytes |
|---|---|
| codes of positions and steps | 1 |
| k, the number of changed words; 7 bits per byte, the lowest first | 1 to 4 |
| positions, in the smallest code of ``messages.py`` | |
| the sum of the steps' numbers, like k; steps | |

A step is new - old, which wraps around; an update of bf16 weights usually makes it 1 or -1. Its number is 1,
2, 3, ... for -1, 1, -2, ... The numbers' cumulative sums ascend, and are encoded as positions are. Without a
changed word a chunk is the byte of its codes and k = 0.
"""

import numpy as np
import torch

from compressors.encoding.index_codes import BadMessageError, IndexCodes
from compressors.encoding.messages import PLAIN, RICE, Format, Reader, read_positions, varint, write_positions
from compressors.encoding.settings import Encoding

CHUNK = 2**24  # words: a bound of the memory beside the vectors
_AUTO = Encoding(indices="auto")


def write_changes(old: np.ndarray, new: np.ndarray, codes: IndexCodes) -> tuple[np.ndarray, int]:
    """The message [...] uint8 that changes ``old`` to ``new``, and the number of changed words.

    Both are [d], int8, int16 or int32.
    """
    parts, changed = [], 0
    for start in range(0, len(new), CHUNK):
        before, after = old[start : start + CHUNK], new[start : start + CHUNK]
        where = np.flatnonzero(before != after)
        changed += len(where)
        code, positions = write_positions(_form(len(after), codes), where)
        if len(where) == 0:
            parts.append(np.zeros(2, dtype=np.uint8))
            continue
        steps = (after[where] - before[where]).astype(np.int64)
        sums = np.cumsum((steps << 1) ^ (steps >> 63))
        size = int(sums[-1])
        steps_code, numbers = write_positions(_form(size, codes), sums - 1)
        head = np.frombuffer(bytes([code | steps_code << 4]) + varint(len(where)), dtype=np.uint8)
        parts += [head, *positions, np.frombuffer(varint(size), dtype=np.uint8), *numbers]
    return np.concatenate([np.empty(0, dtype=np.uint8), *parts]), changed


def apply_changes(message: np.ndarray, words: np.ndarray, codes: IndexCodes) -> None:
    """Change ``words`` [d] in place.

    Raises ``BadMessageError`` for bytes that ``write_changes`` cannot write.
    """
    reader = Reader(message)
    for start in range(0, len(words), CHUNK):
        chunk = words[start : start + CHUNK]
        both, k = int(reader.take(1)[0]), reader.varint()
        if k > len(chunk):
            raise BadMessageError(f"it announces {k} of {len(chunk)} words")
        if not all(PLAIN <= code <= RICE for code in (both & 15, both >> 4)):
            raise BadMessageError(f"its code is {both}, which is none")
        if k == 0:
            continue
        where = read_positions(_form(len(chunk), codes), reader, both & 15, k)
        sums = read_positions(_form(reader.varint(), codes), reader, both >> 4, k)
        numbers = np.diff(sums, prepend=-1)
        chunk[where] += ((numbers >> 1) ^ -(numbers & 1)).astype(words.dtype)
    reader.finish()


def _form(size: int, codes: IndexCodes) -> Format:
    return Format(_AUTO, np.array([0, size]), torch.int32, codes)  # the dtype of values has no meaning here
