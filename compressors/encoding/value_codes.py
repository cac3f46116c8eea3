"""Codes of values: exact, rounded to a smaller float, or rounded to 8, 4 or 2 bits with scales.

Rounding is to nearest, ties to even; fp64 is rounded to fp32 first. ``int8`` (Dettmers, 2016,
https://arxiv.org/abs/1511.04561) divides by a scale, one fp32 number per layer with sent entries: the largest
magnitude over 127. ``int4`` and ``int2`` have few levels, so they have a scale for every 64 entries of a
layer, the largest magnitude over 7 and over 1: 4.5 and 2.5 bits per value.

Values that are too large for the smaller float, above 65504 in fp16, become its largest number; the
difference is part of the rounding error. Inf also becomes the largest number, so the error is infinite. NaN
stays NaN. With integers, Inf, NaN and numbers beyond fp32's range make all values of their scale NaN. Values
that are not finite therefore always show in the residual or in the mean.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.encoding.index_codes import BadMessageError


class Integers(NamedTuple):
    """A code of integers from -``limit`` to ``limit``, packed from the lowest bit of a byte on."""

    bits: int
    block: int | None  # entries of a layer that share a scale; None: all

    @property
    def limit(self) -> float:
        return 2.0 ** (self.bits - 1) - 1

    def groups(self, counts: np.ndarray) -> np.ndarray:
        """Number of entries of every scale, in order, of layers with ``counts`` [L] entries."""
        if self.block is None:
            return counts[counts > 0]
        blocks = -(-counts // self.block)
        sizes = np.full(blocks.sum(), self.block)
        last = blocks.cumsum()[blocks > 0] - 1
        sizes[last] = (counts - (blocks - 1) * self.block)[blocks > 0]
        return sizes


FLOATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
INTEGERS = {"int8": Integers(8, None), "int4": Integers(4, 64), "int2": Integers(2, 64)}
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per number


def encode_values(code: str, values: Tensor, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and codes of ``values`` [k] on the CPU, in layer order with ``counts`` [L].

    Both are bytes, [...] uint8.
    """
    if code in INTEGERS:
        own = INTEGERS[code]
        entries, groups = values.float().numpy(), own.groups(counts)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scales = _scales(entries, groups, own.limit)
            steps = np.rint(entries / scales.repeat(groups))
        steps = np.nan_to_num(steps, nan=0.0, posinf=own.limit, neginf=-own.limit)
        steps = steps.clip(-own.limit, own.limit)
        return scales.view(np.uint8), _pack(steps.astype(np.int8).view(np.uint8), own.bits)
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
    if code in INTEGERS:
        own, per_group = INTEGERS[code], scales.copy().view(np.float32)
        steps = _unpack(codes, own.bits, int(counts.sum()))
        with np.errstate(over="ignore", invalid="ignore"):  # the error below replaces NumPy's warning
            if (per_group < 0).any() or np.isinf(per_group * np.float32(own.limit)).any():
                raise BadMessageError("a scale is negative, or so large that values are infinite")
            if (steps < -own.limit).any():
                raise BadMessageError("a value lies beyond its scale")
            return torch.from_numpy(steps * per_group.repeat(own.groups(counts))).to(dtype)
    sent = FLOATS.get(code, dtype)
    words = codes.copy().view(f"i{sent.itemsize}")  # the copy is aligned
    return torch.from_numpy(words).view(sent).to(dtype)


def sizes(code: str, counts: np.ndarray, dtype: torch.dtype) -> tuple[int, int]:
    """Lengths in bytes of the scales and of the codes."""
    k = int(counts.sum())
    if code in INTEGERS:
        own = INTEGERS[code]
        return 4 * len(own.groups(counts)), -(-k * own.bits // 8)
    return 0, k * FLOATS.get(code, dtype).itemsize


def _largest(code: str, dtype: torch.dtype) -> float:
    """The largest number that both dtypes represent: 65280 for values in fp16 with code bf16."""
    if code == "bf16" and dtype == torch.float16:
        return 65280.0
    return min(torch.finfo(FLOATS[code]).max, torch.finfo(dtype).max)


def _scales(entries: np.ndarray, groups: np.ndarray, limit: float) -> np.ndarray:
    """Per group the largest magnitude over ``limit``, NaN if that is not finite, [...] float32."""
    if len(entries) == 0:
        return np.empty(0, dtype=np.float32)
    starts = np.cumsum(groups) - groups
    scales = np.maximum.reduceat(np.abs(entries), starts) / np.float32(limit)
    # Rounding 1/127 of the largest numbers up can overflow.
    too_large = np.isfinite(scales) & np.isinf(scales * np.float32(limit))
    scales = np.where(too_large, np.nextafter(scales, np.float32(0)), scales)
    return np.where(np.isfinite(scales), scales, np.float32(np.nan))


def _pack(steps: np.ndarray, bits: int) -> np.ndarray:
    """The lowest ``bits`` bits of each of ``steps`` [k] uint8, [ceil(k bits / 8)] uint8."""
    each = 8 // bits
    rows = np.pad(steps & np.uint8(2**bits - 1), (0, -len(steps) % each)).reshape(-1, each)
    return np.bitwise_or.reduce(rows << np.arange(0, 8, bits, dtype=np.uint8), axis=1)


def _unpack(codes: np.ndarray, bits: int, count: int) -> np.ndarray:
    """``count`` steps [count] int8 of ``bits`` bits in two's complement. Raises ``BadMessageError``."""
    places = np.arange(8 - bits, -1, -bits, dtype=np.uint8)  # shifts of a byte's codes to its highest bits
    steps = (codes[:, None] << places).reshape(-1)
    if (steps[count:] >> np.uint8(8 - bits)).any():
        raise BadMessageError("unused bits are set")
    return steps[:count].view(np.int8) >> np.int8(8 - bits)
