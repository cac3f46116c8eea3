"""Encoding and decoding of quantisers' payloads by compiled loops, from their roundings."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.randomness import hash_keys
from compressors.core.rules import Halves, Levels, Powers, Rounding, Signs, Ternary
from compressors.encoding.packing import widths_of
from compressors.kernels.cpu import quantising as loops
from compressors.kernels.cpu.codes import TERNARY


def encode(rounding: Rounding, x: np.ndarray) -> list[Tensor]:
    """The fields of the payload of ``x`` [d] float32, which becomes the residual."""
    return [torch.from_numpy(field) for field in _ENCODERS[type(rounding)](rounding, x)]


def decode(rounding: Rounding, payload: Sequence[Tensor], out: np.ndarray) -> None:
    """Add a payload to ``out`` [d] float32."""
    _DECODERS[type(rounding)](rounding, [field.contiguous().numpy() for field in payload], out)


def _encode_signs(rounding: Signs, x: np.ndarray) -> list[np.ndarray]:
    totals, sizes = np.empty(len(rounding.edges) - 1), np.maximum(1, np.diff(rounding.edges))
    loops.magnitude_sums(x, rounding.edges, totals)
    scales = (totals / sizes).astype(np.float32)
    return [_rounded_to_signs(rounding, x, scales, -scales), scales]


def _decode_signs(rounding: Signs, payload: list[np.ndarray], out: np.ndarray) -> None:
    packed, scales = payload
    loops.add_signs(packed, rounding.edges, scales, -scales, out)


def _rounded_to_signs(
    rounding: Signs | Halves, x: np.ndarray, high: np.ndarray, low: np.ndarray
) -> np.ndarray:
    """The packed signs of ``x``, from which the value of each entry's sign is subtracted."""
    packed = np.empty(-(-len(x) // 8), dtype=np.uint8)
    loops.round_to_signs(x, rounding.edges, high, low, packed)
    return packed


def _encode_halves(rounding: Halves, x: np.ndarray) -> list[np.ndarray]:
    sizes = np.diff(rounding.edges)
    totals, positive = np.empty((2, len(sizes))), np.empty(len(sizes), dtype=np.int64)
    loops.sums_of_halves(x, rounding.edges, totals, positive)
    high, low = (totals / np.maximum(1, [positive, sizes - positive])).astype(np.float32)
    return [_rounded_to_signs(rounding, x, high, low), np.concatenate([high, low])]


def _decode_halves(rounding: Halves, payload: list[np.ndarray], out: np.ndarray) -> None:
    packed, means = payload
    loops.add_signs(packed, rounding.edges, *means.reshape(2, -1), out)


def _encode_ternary(rounding: Ternary, x: np.ndarray) -> list[np.ndarray]:
    totals = np.empty((3, len(rounding.edges) - 1))
    loops.moments(x, rounding.edges, rounding.clip is not None, totals)
    largest, sums, squares = totals
    if rounding.clip is not None:
        sizes = np.maximum(1, np.diff(rounding.edges))
        mean, squares = sums / sizes, squares / sizes
        with np.errstate(invalid="ignore"):  # NaN stays NaN; NumPy would warn
            variance = squares - mean * mean
            clipped = np.minimum(largest, rounding.clip * np.sqrt(variance))
            largest = np.where(variance > 1e-12 * squares, clipped, largest)
    scales = np.minimum(largest, np.finfo(np.float32).max).astype(np.float32)
    each = rounding.values_per_byte
    packed = np.empty(-(-len(x) // each), dtype=np.uint8)
    first, second = hash_keys(rounding.seed)
    loops.round_to_ternary(x, rounding.edges, scales, first, second, _kind(rounding), packed)
    return [packed, scales]


def _decode_ternary(rounding: Ternary, payload: list[np.ndarray], out: np.ndarray) -> None:
    loops.add_ternary(payload[0], rounding.edges, payload[1], _kind(rounding), out)


def _kind(rounding: Ternary) -> int:
    return TERNARY if rounding.values_per_byte == 5 else 2


def _encode_powers(rounding: Powers, x: np.ndarray) -> list[np.ndarray]:
    exponents, packed = np.empty(len(x), dtype=np.uint8), np.empty(-(-len(x) // 8), dtype=np.uint8)
    first, second = hash_keys(rounding.seed)
    loops.round_to_powers(x, first, second, exponents, packed)
    return [exponents, packed]


def _decode_powers(rounding: Powers, payload: list[np.ndarray], out: np.ndarray) -> None:
    loops.add_powers(payload[0], payload[1], out)


def _encode_levels(rounding: Levels, x: np.ndarray) -> list[np.ndarray]:
    size, bucket_size = len(x), max(1, min(rounding.bucket_size, -(-len(x) // 8) * 8))
    norms = np.empty(-(-size // bucket_size), dtype=np.float32)
    widths, starts = _parts(rounding, size)
    packed = np.empty(starts[-1], dtype=np.uint8)
    first, second = hash_keys(rounding.seed)
    is_largest = rounding.norm == "max"
    loops.round_to_levels(
        x, rounding.number, bucket_size, is_largest, first, second, norms, widths, starts, packed
    )
    return [*np.split(packed, starts[1:-1]), norms]


def _decode_levels(rounding: Levels, payload: list[np.ndarray], out: np.ndarray) -> None:
    *parts, norms = payload
    bucket_size = max(1, min(rounding.bucket_size, -(-len(out) // 8) * 8))
    widths, starts = _parts(rounding, len(out))
    packed = parts[0] if len(parts) == 1 else np.concatenate(parts)
    loops.add_levels(packed, rounding.number, bucket_size, norms, widths, starts, out)


def _parts(rounding: Levels, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Bits of a code's parts, [P], and their starts in one buffer, [P + 1], int64."""
    widths = np.array(widths_of(rounding.bits))
    starts = np.concatenate([[0], np.cumsum(-(-size * widths // 8))])
    return widths, starts


_ENCODERS: dict[type, Callable[[Any, np.ndarray], list[np.ndarray]]] = {
    Signs: _encode_signs,
    Halves: _encode_halves,
    Ternary: _encode_ternary,
    Powers: _encode_powers,
    Levels: _encode_levels,
}
_DECODERS: dict[type, Callable[[Any, list[np.ndarray], np.ndarray], None]] = {
    Signs: _decode_signs,
    Halves: _decode_halves,
    Ternary: _decode_ternary,
    Powers: _decode_powers,
    Levels: _decode_levels,
}
