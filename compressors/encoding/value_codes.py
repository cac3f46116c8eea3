"""Codes of values: exact, rounded to a smaller float, or rounded to 8 bits with a scale.

Rounding is to nearest, ties to even; fp64 is rounded to fp32 first. ``int8`` (Dettmers, 2016,
https://arxiv.org/abs/1511.04561) divides by a scale, one fp32 number per layer with sent entries: the largest
magnitude over 127. Values that are too large for the smaller float, above 65504 in fp16, become its largest
number; the difference is rounding error. Inf also becomes the largest number, so the error is infinite. NaN
stays NaN. With int8, Inf, NaN and numbers beyond fp32's range make their whole layer NaN. A step with values
that are not finite is therefore visible in the residual or in the mean.
"""

import numpy as np
import torch
from torch import Tensor

from compressors.encoding.index_codes import BadMessageError

FLOATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
LIMIT = 127.0
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per number


def encode_values(code: str, values: Tensor, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and codes of ``values`` [k] on the CPU, in layer order with ``counts`` [L].

    Both are bytes, [...] uint8.
    """
    if code == "int8":
        entries, per_layer = values.float().numpy(), counts[counts > 0]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scales = _scales(entries, per_layer)
            steps = np.rint(entries / scales.repeat(per_layer))
        steps = np.nan_to_num(steps, nan=0.0, posinf=LIMIT, neginf=-LIMIT).clip(-LIMIT, LIMIT)
        return scales.view(np.uint8), steps.astype(np.int8).view(np.uint8)
    if code in FLOATS:
        largest = _largest(code, values.dtype)
        values = values.clamp(-largest, largest).to(FLOATS[code])
    words = values.contiguous().view(_WORDS[values.itemsize])
    return np.empty(0, dtype=np.uint8), words.numpy().view(np.uint8)


def decode_values(
    code: str, scales: np.ndarray, codes: np.ndarray, counts: np.ndarray, dtype: torch.dtype
) -> Tensor:
    """The rounded values, [k] of ``dtype``.

    The bytes must have the lengths from ``sizes``. Raises ``BadMessageError``.
    """
    if code == "int8":
        per_layer, steps = scales.copy().view(np.float32), codes.view(np.int8)
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would be a second line
            if (per_layer < 0).any() or np.isinf(per_layer * np.float32(LIMIT)).any():
                raise BadMessageError("a scale is negative, or so large that values are infinite")
            if (steps == -128).any():
                raise BadMessageError("a value lies beyond its scale")
            return torch.from_numpy(steps * per_layer.repeat(counts[counts > 0])).to(dtype)
    sent = FLOATS.get(code, dtype)
    words = codes.copy().view(f"i{sent.itemsize}")  # the copy is aligned
    return torch.from_numpy(words).view(sent).to(dtype)


def sizes(code: str, counts: np.ndarray, dtype: torch.dtype) -> tuple[int, int]:
    """Lengths in bytes of the scales and of the codes."""
    if code == "int8":
        return 4 * int(np.count_nonzero(counts)), int(counts.sum())
    return 0, int(counts.sum()) * FLOATS.get(code, dtype).itemsize


def _largest(code: str, dtype: torch.dtype) -> float:
    """The largest number in both dtypes; for bf16 values and fp16 it is 65280."""
    if code == "bf16" and dtype == torch.float16:
        return 65280.0
    return min(torch.finfo(FLOATS[code]).max, torch.finfo(dtype).max)


def _scales(entries: np.ndarray, per_layer: np.ndarray) -> np.ndarray:
    """Per layer the largest magnitude over 127, NaN if that is not finite, [...] float32."""
    if len(entries) == 0:
        return np.empty(0, dtype=np.float32)
    starts = np.cumsum(per_layer) - per_layer
    scales = np.maximum.reduceat(np.abs(entries), starts) / np.float32(LIMIT)
    # Rounding 1/127 of the largest numbers up can overflow.
    too_large = np.isfinite(scales) & np.isinf(scales * np.float32(LIMIT))
    scales = np.where(too_large, np.nextafter(scales, np.float32(0)), scales)
    return np.where(np.isfinite(scales), scales, np.float32(np.nan))
