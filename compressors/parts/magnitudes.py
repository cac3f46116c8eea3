"""Histogram of magnitudes over any number of steps.

There are 32 bins per octave: a bin is the exponent and the 5 leading bits of the mantissa of |p| as fp32.
Each bin has the number of entries and the sum of their squares. Squares are rounded to 24 bits or more, so
each entry is one addition of integers. The order of additions does not change the result: every kernel,
device, number of threads and number of processes gives the same bits.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.segments import Input

PARTS, OCTAVES, LOWEST = 32, 128, -88  # bins per octave; octaves; exponent of the first octave
BINS = PARTS * OCTAVES
SQUARES_ERROR = 2.0**-22  # relative: 2^-24 from rounded squares, 2 x 2^-24 from fp64 entries as fp32

_MANTISSA, _BIAS = 23, 127  # of fp32
DROPPED = _MANTISSA - 5  # low bits of an entry that do not affect its bin
FIRST_KEY = (_BIAS + LOWEST) * PARTS
# The upper 19 bits of a word count entries; the lower bits sum (mantissa^2 + 2^22) >> 23, 24 bits each.
COUNT, ROUNDED = 44, 23
FULL = 2**19 - 1  # entries that a word can count
PIECE = 2**18  # entries of a layer per piece, as in the kernels' tables

_OCTAVE, _PART = np.divmod(np.arange(BINS), PARTS)
EDGES = np.append((1 + _PART / PARTS) * 2.0 ** (LOWEST + _OCTAVE), 2.0 ** (LOWEST + OCTAVES))  # [BINS + 1]
SCALES = 2.0 ** (ROUNDED + 2 * (LOWEST + _OCTAVE - _MANTISSA))  # from a word's sum to a sum of squares
SCALES[0], SCALES[-1] = 0.0, np.inf  # smaller entries count as 0, larger ones as infinite


class Magnitudes(NamedTuple):
    """Histograms of the local workers' entries, in the form of a checkpoint: all tensors are [W, ...].

    float64: counts stay exact up to 2^53, and a change of the number of workers can split them.
    """

    counts: Tensor  # [W, BINS]
    squares: Tensor  # [W, BINS]


class Histogram:
    """Histogram of all entries so far, per local worker. Entries outside the range are in the first and last
    bin."""

    def __init__(self, num_workers: int, device: torch.device | str = "cpu") -> None:
        zeros = torch.zeros(num_workers, BINS, dtype=torch.float64, device=device)
        self.flushed = Magnitudes(zeros, zeros.clone())
        self.words = torch.zeros(
            num_workers, BINS, dtype=torch.int64, device=device
        )  # not yet in ``flushed``
        self.filled = np.zeros(num_workers, dtype=np.int64)  # entries in each worker's words
        self.scales = torch.from_numpy(SCALES).to(device)

    @property
    def magnitudes(self) -> Magnitudes:
        """The histograms after the last step."""
        self.flush()
        return self.flushed

    @torch.inference_mode()
    def flush(self) -> None:
        """Move the words to counts and sums."""
        words, flushed = self.words, self.flushed
        flushed.counts.add_(words >> COUNT)
        sums = (words & (2**COUNT - 1)).double() * self.scales
        flushed.squares.add_(sums.masked_fill_(words == 0, 0))  # 0 times infinity is NaN
        words.zero_()
        self.filled[:] = 0


def count_pieces(inputs: list[Input], histogram: Histogram) -> None:
    """Add every entry of p to its worker's histogram: the definition for the compiled loops.

    Pieces that fit into the words are counted together, because on a GPU the calls of many small layers take
    longer than their work. Memory is needed for ``FULL`` entries of each worker, whatever the model's size.
    """
    together: list[Tensor] = []
    for piece in _pieces(inputs):
        if histogram.filled[0] + piece.shape[1] > FULL:
            _count(together, histogram)
            histogram.flush()
            together = []
        histogram.filled += piece.shape[1]
        together.append(piece)
    _count(together, histogram)


def groups_of(sizes: list[int], histogram: Histogram) -> list[int]:
    """The group in which the words count each piece of so many entries; group 0 is that of the words now.

    The words are flushed after each group but the last, for which ``histogram.filled`` is updated.
    """
    group, groups, filled = 0, [], int(histogram.filled[0])
    for size in sizes:
        if filled + size > FULL:
            group, filled = group + 1, 0
        filled += size
        groups.append(group)
    histogram.filled[:] = filled
    return groups


def _count(pieces: list[Tensor], histogram: Histogram) -> None:
    """Add the entries of ``pieces``, [W, c] each, to the words."""
    if not pieces:
        return
    bits = torch.cat(pieces, 1).float().view(torch.int32) & (2**31 - 1)
    keys = ((bits >> DROPPED) - FIRST_KEY).clamp_(0, BINS - 1).long()
    keys += BINS * torch.arange(len(keys), device=keys.device)[:, None]
    mantissas = ((bits & (2**_MANTISSA - 1)) | 2**_MANTISSA).long()
    words = (mantissas * mantissas + 2 ** (ROUNDED - 1) >> ROUNDED) + 2**COUNT
    histogram.words.view(-1).index_add_(0, keys.view(-1), words.view(-1))


def _pieces(inputs: list[Input]) -> Iterator[Tensor]:
    """Pieces of p of all segments, layer by layer, [W, c] each."""
    for given in inputs:
        sizes = np.diff(given.segment.edges).tolist()
        terms = [given.segment.rows] if given.memory is None else [given.memory, given.segment.rows]
        pieces = ([p for layer in term.split(sizes, 1) for p in layer.split(PIECE, 1)] for term in terms)
        for first, *added in zip(*pieces, strict=True):
            yield first.add(added[0], alpha=given.scale) if added else first
