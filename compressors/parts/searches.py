"""Positions of the large entries of rows p = e + scale g, without computing p in place.

A row is the vector p of one worker in one segment: row s W + w is that of worker w in segment s.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from compressors.core.payloads import numpy_knows
from compressors.core.segments import Input, Segment

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per entry
# Number of entries whose magnitudes and mask stay in cache. On a CPU, NumPy compares and searches them four
# times as fast as torch 2.13.
_CHUNK = 2**16
# Number of entries from which a threshold is guessed. Of 11 million entries, the largest 1 % are then found
# in less than a tenth of the time that torch 2.13's topk of all entries takes.
_SAMPLE = 2**14


def narrowed(given: Input, row: int, begin: int, end: int) -> Input:
    """The input for one local worker's entries from ``begin`` to ``end``."""
    part = slice(row, row + 1), slice(begin, end)
    segment = Segment(f"{given.name}/{row}/{begin}", given.segment.rows[part], ((end - begin,),))
    return Input(segment, None if given.memory is None else given.memory[part], given.scale)


def search_rows(inputs: list[Input], thresholds: np.ndarray) -> list[Tensor]:
    """Per row the ascending positions [k] int64 of the entries of at least ``thresholds`` [R] in magnitude.

    This is the definition for the compiled loops.
    """
    rows = [row for given in inputs for row in given.seen().rows]
    return [at_least(threshold, row) for threshold, row in zip(thresholds.tolist(), rows, strict=True)]


def at_least(threshold: float | Tensor, x: Tensor) -> Tensor:
    """Ascending positions [k] int64 of the entries of ``x`` [d] with at least this magnitude.

    ``threshold`` may be a scalar on the device of ``x``; the host waits for the number of entries alone.
    """
    if not numpy_knows(x):
        return torch.nonzero(~(x.abs() < threshold)).squeeze(1)
    entries, threshold = x.numpy(), float(threshold)
    if len(entries) <= _CHUNK:
        return torch.from_numpy(np.flatnonzero(~(np.abs(entries) < threshold)))
    kept = [
        np.flatnonzero(~(np.abs(entries[start : start + _CHUNK]) < threshold)) + start
        for start in range(0, len(entries), _CHUNK)
    ]
    return torch.from_numpy(np.concatenate(kept))


def search_largest_rows(inputs: list[Input], numbers: Sequence[int]) -> list[Tensor]:
    """Per row the ascending positions [k] int64 of the ``numbers`` [R] largest magnitudes.

    This is the definition for the compiled loops. Ties go to the lowest index.
    """
    rows = [row for given in inputs for row in given.seen().rows]
    return [positions_of_largest(row, number) for row, number in zip(rows, numbers, strict=True)]


def positions_of_largest(x: Tensor, k: int) -> Tensor:
    """Ascending positions [k] int64 of the k largest magnitudes of ``x`` [d]; ties go to the lowest index."""
    if x.device.type != "cpu":  # exactly k are kept, so the host does not wait for a count from a GPU
        return torch.nonzero_static(largest(magnitude_keys(x.contiguous()), k), size=k).squeeze(1)
    threshold = _guess_threshold(x, k)
    if threshold > 0:
        candidates = at_least(threshold, x)
        if len(candidates) >= k:
            return candidates[largest(magnitude_keys(x[candidates]), k)]
    return largest(magnitude_keys(x.contiguous()), k).nonzero().squeeze(1)


def _guess_threshold(x: Tensor, k: int) -> float:
    """A magnitude that probably at least k entries of ``x`` [d] reach, but not many more; 0 if unknown."""
    if len(x) < 4 * _SAMPLE:
        return 0.0
    sample = x[:: len(x) // _SAMPLE].abs()
    expected = k * len(sample) / len(x)
    rank = math.ceil(expected + 4 * math.sqrt(expected) + 8)  # four standard deviations, and 8 for a small k
    return sample.topk(rank).values[-1].item() if rank <= len(sample) else 0.0


def magnitude_keys(x: Tensor) -> Tensor:
    """Integers >= 0 with the order of the magnitudes of ``x`` [d], contiguous; NaN is above any number."""
    bits = x.view(_BITS[x.itemsize])
    return bits & torch.iinfo(bits.dtype).max  # without the sign bit


def largest(keys: Tensor, k: int) -> Tensor:
    """Which of ``keys`` [d] are the k largest, [d] bool; ties go to the lowest index."""
    smallest = keys.topk(k).values[-1]  # among the k largest
    above, equal = keys > smallest, keys == smallest
    return above | (equal & (equal.cumsum(0) <= k - above.sum()))
