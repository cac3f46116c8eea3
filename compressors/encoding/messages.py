"""Encoded messages: head, positions and values of one worker in one step.

| part | bytes | charged as |
|---|---|---|
| codes of indices and values | 1 | metadata |
| k, the number of entries; 7 bits per byte, the lowest first | 1 to 5 below 2^35 | metadata |
| plain: positions; bitmap: its bits; rice: bytes in unary (like k), widths, lowest bits, unary | | indices |
| int8: the scales of the layers that have entries; int4, int2: of blocks of 64 | 4 each | metadata |
| values | | values |

Positions are ascending in the concatenation of all segments, so counts per segment are not sent. If positions
follow from the seed, none are sent. The receiver knows the size of each part from the parts before it, and
checks lengths, ranges, order and unused bits.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.payloads import index_dtype
from compressors.encoding.index_codes import BLOCK, WIDEST, BadMessageError, IndexCodes, low_bytes
from compressors.encoding.settings import VALUES, Encoding
from compressors.encoding.value_codes import decode_values, encode_values, sizes

PLAIN, BITMAP, RICE, DRAWN = range(4)
_ALLOWED = {"plain": (PLAIN,), "bitmap": (BITMAP,), "rice": (RICE,), "auto": (PLAIN, BITMAP, RICE)}
_NUMPYS: dict[torch.dtype, np.dtype[Any]] = {torch.int32: np.dtype("<i4"), torch.int64: np.dtype("<i8")}
Parts = list[tuple[str, np.ndarray]]  # kind and bytes of each part, in the order of sending


class Format(NamedTuple):
    """Facts about every message that sender and receiver know in advance."""

    encoding: Encoding
    edges: np.ndarray  # [L + 1] int64, layers' boundaries in the concatenation of segments: 0, ..., D
    dtype: torch.dtype  # of values before encoding
    codes: IndexCodes

    @property
    def size(self) -> int:
        """D, the number of elements of all segments."""
        return int(self.edges[-1])

    @property
    def index_type(self) -> np.dtype[Any]:
        return _NUMPYS[index_dtype(self.size)]


def write(form: Format, positions: np.ndarray, values: Tensor, drawn: bool) -> tuple[Parts, Tensor]:
    """The message of ``values`` [k] at ascending ``positions`` [k] int64, and the decoded values.

    ``drawn`` positions are known to the receiver and are not sent.
    """
    code = form.encoding.values
    counts = _counts(form, positions)
    which, indices = (DRAWN, []) if drawn else write_positions(form, positions)
    head = bytes([which | VALUES.index(code) << 4]) + varint(len(positions))
    scales, codes = encode_values(code, values, counts)
    parts = [("metadata", np.frombuffer(head, dtype=np.uint8))]
    parts += [("indices", part) for part in indices]
    parts += [("metadata", scales), ("values", codes)]
    arrive = decode_values(code, scales, codes, counts, form.dtype) if form.encoding.rounds else values
    return parts, arrive


def read(form: Format, message: np.ndarray, drawn: np.ndarray | None = None) -> tuple[np.ndarray, Tensor]:
    """Positions [k] int64 and values [k] of a message, [...] uint8; ``drawn`` are positions that were not
    sent.

    Raises ``BadMessageError`` if ``write`` cannot produce these codes, lengths, ranges, order or unused bits
    for the same ``form``. Does not check that the code is the smallest.
    """
    reader = Reader(message)
    codes = int(reader.take(1)[0])
    allowed = (DRAWN,) if drawn is not None else _ALLOWED[form.encoding.indices]
    if codes & 15 not in allowed or codes >> 4 != VALUES.index(form.encoding.values):
        raise BadMessageError(f"its code is {codes}, which the settings do not permit")
    k = reader.varint()
    if k > form.size:
        raise BadMessageError(f"it announces {k} of {form.size} elements")
    if drawn is None:
        positions = read_positions(form, reader, codes & 15, k)
    else:
        positions = drawn
        if k != len(drawn):
            raise BadMessageError(f"it announces {k} entries, {len(drawn)} were drawn")
    counts = _counts(form, positions)
    num_scales, num_codes = sizes(form.encoding.values, counts, form.dtype)
    scales, values = reader.take(num_scales), reader.take(num_codes)
    reader.finish()
    return positions, decode_values(form.encoding.values, scales, values, counts, form.dtype)


def largest_message(form: Format) -> int:
    """Upper bound of a message's length in bytes."""
    return 64 + len(form.edges) * 4 + form.size * (8 + form.dtype.itemsize + 1)


def write_positions(form: Format, positions: np.ndarray) -> tuple[int, list[np.ndarray]]:
    """The code and bytes of the positions, by the smallest permitted code; the first one in a tie."""
    k, allowed = len(positions), _ALLOWED[form.encoding.indices]
    taken = {PLAIN: k * form.index_type.itemsize, BITMAP: -(-form.size // 8)}
    if RICE in allowed:
        widths, unary_bytes = form.codes.widths(positions)
        length = varint(unary_bytes)
        taken[RICE] = len(length) + len(widths) + low_bytes(widths, k) + unary_bytes
    which = min(allowed, key=taken.__getitem__)
    if which == PLAIN:
        return which, [positions.astype(form.index_type).view(np.uint8)]
    if which == BITMAP:
        return which, [form.codes.bitmap(positions, form.size)]
    low, unary = form.codes.rice(positions, widths, unary_bytes)
    return which, [np.frombuffer(length, dtype=np.uint8), widths, low, unary]


def read_positions(form: Format, reader: "Reader", code: int, k: int) -> np.ndarray:
    """The ``k`` positions, [k] int64, of ``write_positions``' ``code``. Raises ``BadMessageError``."""
    if code == PLAIN:
        plain = reader.take(k * form.index_type.itemsize).copy().view(form.index_type).astype(np.int64)
        if k and (plain[0] < 0 or plain[-1] >= form.size or (np.diff(plain) <= 0).any()):
            raise BadMessageError("its positions do not ascend from 0 to the last element")
        return plain
    if code == BITMAP:
        return form.codes.unbitmap(reader.take(-(-form.size // 8)), k, form.size)
    unary_bytes = reader.varint()
    widths = reader.take(-(-k // BLOCK))
    if len(widths) and widths.max() > min(WIDEST, form.size.bit_length()):
        raise BadMessageError("a gap has more bits than any position")
    low = reader.take(low_bytes(widths, k))
    return form.codes.unrice(low, reader.take(unary_bytes), widths, k, form.size)


def _counts(form: Format, positions: np.ndarray) -> np.ndarray:
    """Entries per layer, [L]."""
    return np.diff(np.searchsorted(positions, form.edges))


def varint(number: int) -> bytes:
    """Varint: 7 bits per byte, lowest first; only the last byte is below 128."""
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found) + bytes([number])


class Reader:
    """Sequential reader of a message, which refuses to read beyond its end."""

    def __init__(self, message: np.ndarray) -> None:
        self.message = message
        self.at = 0

    def take(self, num_bytes: int) -> np.ndarray:
        left = len(self.message) - self.at
        if num_bytes > left:
            raise BadMessageError(f"it ends after {len(self.message)} bytes, {num_bytes - left} too early")
        self.at += num_bytes
        return self.message[self.at - num_bytes : self.at]

    def varint(self) -> int:
        number = 0
        for place in range(9):
            byte = int(self.take(1)[0])
            number |= (byte & 127) << 7 * place
            if byte < 128:
                if byte == 0 and place:
                    break
                return number
        raise BadMessageError("a length is malformed")

    def finish(self) -> None:
        if self.at < len(self.message):
            raise BadMessageError(f"it has {len(self.message) - self.at} bytes after its end")
