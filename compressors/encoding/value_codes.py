"""Values as bytes and back: as they are, rounded to a smaller float, or to 8 bits with a scale.

Rounding is to the nearest, ties to even; fp64 goes by way of fp32. ``int8`` (as Dettmers, 2016,
https://arxiv.org/abs/1511.04561, and many since) divides by a scale, one fp32 number for each layer of which
anything is sent: the largest magnitude over 127. What is too large for the smaller float, beyond 65504 in
fp16, is cut to the largest there is; the rest is rounding error. Inf is cut as well, so that the error is
infinite; NaN stays NaN; under int8 either, and what no fp32 number holds, makes all of its layer NaN. So a
step that is no good shows as such in what is left or what is sent.
"""

import numpy as np
import torch
from torch import Tensor

from compressors.encoding.index_codes import BadMessageError

FLOATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
LIMIT = 127.0
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of a number


def encode_values(code: str, values: Tensor, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``values`` [k] on the CPU, layer after layer, of which there are ``counts`` [L]: scales and codes.

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
    """What ``encode_values`` was given, rounded, [k] of ``dtype``.

    The bytes have the lengths that ``sizes`` tells. Raises ``BadMessageError``.
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
    words = codes.copy().view(f"i{sent.itemsize}")  # a copy begins where a number may
    return torch.from_numpy(words).view(sent).to(dtype)


def sizes(code: str, counts: np.ndarray, dtype: torch.dtype) -> tuple[int, int]:
    """Bytes of the scales and of the codes."""
    if code == "int8":
        return 4 * int(np.count_nonzero(counts)), int(counts.sum())
    return 0, int(counts.sum()) * FLOATS.get(code, dtype).itemsize


def _largest(code: str, dtype: torch.dtype) -> float:
    """What both of the dtypes can hold: of the numbers of bf16 that fp16 has as well, 65280 is the last."""
    if code == "bf16" and dtype == torch.float16:
        return 65280.0
    return min(torch.finfo(FLOATS[code]).max, torch.finfo(dtype).max)


def _scales(entries: np.ndarray, per_layer: np.ndarray) -> np.ndarray:
    """Per layer the largest magnitude over 127, NaN where that is not finite, [...] float32."""
    if len(entries) == 0:
        return np.empty(0, dtype=np.float32)
    starts = np.cumsum(per_layer) - per_layer
    scales = np.maximum.reduceat(np.abs(entries), starts) / np.float32(LIMIT)
    # Of the largest numbers there are a 127th may have been rounded up.
    too_large = np.isfinite(scales) & np.isinf(scales * np.float32(LIMIT))
    scales = np.where(too_large, np.nextafter(scales, np.float32(0)), scales)
    return np.where(np.isfinite(scales), scales, np.float32(np.nan))
