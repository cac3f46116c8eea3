"""Histogram of magnitudes over any number of steps.

A bin is a 32nd of an octave: the exponent and the 5 leading bits of the mantissa of |p| as fp32. Of each bin
there are the number of entries and the sum of their squares. Squares are rounded to 24 bits or more, so that
an entry is one addition of integers, whose order changes nothing: the same bits from every kernel, device,
number of threads and of processes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.segments import Input

PARTS, OCTAVES, LOWEST = 32, 128, -88  # bins of an octave; octaves, the first one from 2^-88 on
BINS = PARTS * OCTAVES
SQUARES_ERROR = 2.0**-22  # relative: squares rounded to 2^-24, and fp64 to fp32, twice 2^-24 of a square

_MANTISSA, _BIAS = 23, 127  # of fp32
DROPPED = _MANTISSA - 5  # bits of an entry that do not tell its bin
FIRST_KEY = (_BIAS + LOWEST) * PARTS
# A word counts entries in its upper 19 bits; the others are the sum of (mantissa^2 + 2^22) >> 23, 24 bits.
COUNT, ROUNDED = 44, 23
FULL = 2**19 - 1  # entries that a word can hold
_PIECE = 2**18  # entries of a layer that are looked at together, as in the kernels' tables

_OCTAVE, _PART = np.divmod(np.arange(BINS), PARTS)
EDGES = np.append((1 + _PART / PARTS) * 2.0 ** (LOWEST + _OCTAVE), 2.0 ** (LOWEST + OCTAVES))  # [BINS + 1]
SCALES = 2.0 ** (ROUNDED + 2 * (LOWEST + _OCTAVE - _MANTISSA))  # of a word's sum, to a sum of squares
SCALES[0], SCALES[-1] = 0.0, np.inf  # what is smaller counts as nothing, what is larger as infinite


class Magnitudes(NamedTuple):
    """What the local workers' entries have been; everything is [W, ...], to be saved as it is.

    float64: counts stay exact up to 2^53, and a change of the number of workers can split them.
    """

    counts: Tensor  # [W, BINS]
    squares: Tensor  # [W, BINS]


class Histogram:
    """Of all that was added so far, per local worker. Entries beyond the bins are in the first and last."""

    def __init__(self, num_workers: int, device: torch.device | str = "cpu") -> None:
        zeros = torch.zeros(num_workers, BINS, dtype=torch.float64, device=device)
        self.settled = Magnitudes(zeros, zeros.clone())
        self.words = torch.zeros(num_workers, BINS, dtype=torch.int64, device=device)  # not settled yet
        self.filled = np.zeros(num_workers, dtype=np.int64)  # entries in each worker's words
        self._scales = torch.from_numpy(SCALES).to(device)

    @property
    def magnitudes(self) -> Magnitudes:
        """As they are after the last step."""
        self.settle()
        return self.settled

    @torch.inference_mode()
    def settle(self) -> None:
        """Words to counts and sums."""
        words, settled = self.words, self.settled
        settled.counts.add_(words >> COUNT)
        sums = (words & (2**COUNT - 1)).double() * self._scales
        settled.squares.add_(sums.masked_fill_(words == 0, 0))  # 0 times infinity is none
        words.zero_()
        self.filled[:] = 0


def count_pieces(inputs: list[Input], histogram: Histogram) -> None:
    """Add every entry of p to its worker's histogram, the definition of what a compiled loop does."""
    for piece in _pieces(inputs):
        if histogram.filled[0] + piece.shape[1] > FULL:
            histogram.settle()
        histogram.filled += piece.shape[1]
        bits = piece.float().contiguous().view(torch.int32) & (2**31 - 1)
        keys = ((bits >> DROPPED) - FIRST_KEY).clamp_(0, BINS - 1).long()
        keys += BINS * torch.arange(len(keys), device=keys.device)[:, None]
        mantissas = ((bits & (2**_MANTISSA - 1)) | 2**_MANTISSA).long()
        words = (mantissas * mantissas + 2 ** (ROUNDED - 1) >> ROUNDED) + 2**COUNT
        histogram.words.view(-1).index_add_(0, keys.view(-1), words.view(-1))


def _pieces(inputs: list[Input]) -> Iterator[Tensor]:
    """The entries of all segments, layer by layer, [W, c] each."""
    for given in inputs:
        rows = given.segment.rows
        if given.memory is not None:
            rows = given.memory.add(rows, alpha=given.scale)
        for layer in rows.split(np.diff(given.segment.edges).tolist(), dim=1):
            yield from layer.split(_PIECE, dim=1)
