"""AdaComp: the entries that would exceed the largest of their bin if the gradient came once more.

Chen, Choi, Brand, Agrawal, Zhang and Gopalakrishnan, AAAI 2018, https://arxiv.org/abs/1712.02679. Each layer
is cut into bins of ``conv_bin`` (kernels of convolutions) or ``other_bin`` entries. With p = e + g, the
residual and the gradient, an entry is sent if |p + (``scale_factor`` - 1) g| is at least the largest |p| of
its bin. All sent entries of a layer get the sign of p and one magnitude, the mean over bins of the largest
|p|.

Biased; the number sent follows the activity of the bins and cannot be set. Without error feedback e is 0. A
sent entry takes 1 byte for its place in the bin and its sign, or 2 bytes in bins of more than 128 entries; a
bin takes 1 byte for the number of its entries, or 2 in bins of more than 255 entries, and a layer takes 4
bytes for its magnitude. A message has a length of 4 bytes. Deviations from the paper: the counts of bins,
because it does not say how bins are told apart; entries of 0 are not sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from compressors.api import (
    METADATA,
    Communicator,
    Input,
    Reduced,
    Reducer,
    Segment,
    State,
    Step,
    Traits,
    is_count,
    is_real,
    require,
)
from compressors.core.backends import backend_of
from compressors.core.codec import Compressed
from compressors.core.payloads import divide
from compressors.core.rounds import begin

CODES = "codes"  # the kind of the bytes for places and signs
_LONGEST = 2**15  # entries of a bin: 15 bits for the place and one for the sign


class _Layer(NamedTuple):
    start: int  # in its segment
    size: int
    bin: int  # entries of a bin

    @property
    def num_bins(self) -> int:
        return -(-self.size // self.bin)

    @property
    def code_type(self) -> Any:
        return np.uint8 if self.bin <= 128 else np.uint16

    @property
    def count_type(self) -> Any:
        return np.uint8 if self.bin <= 255 else np.uint16


@dataclass(frozen=True, kw_only=True)
class AdaComp(Reducer):
    """Sends signs of entries of every bin, and one magnitude per layer.

    Longer bins and a lower ``scale_factor`` send less. Raises ``ValueError`` for bins that do not have 1 to
    32768 entries, and for a factor below 1.
    """

    conv_bin: int = 50
    other_bin: int = 500
    scale_factor: float = 2.0

    traits = Traits(exact=False, ragged=True)
    kinds = (CODES,)
    examples = ({"other_bin": 50},)

    def __post_init__(self) -> None:
        for name in ("conv_bin", "other_bin"):
            value = getattr(self, name)
            valid = is_count(value) and value <= _LONGEST
            require(valid, f"AdaComp.{name}", f"an integer from 1 to {_LONGEST}", value)
        valid = is_real(self.scale_factor) and self.scale_factor >= 1
        require(valid, "AdaComp.scale_factor", "a finite number >= 1", self.scale_factor)

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        further = [given.segment.rows * (given.scale * (self.scale_factor - 1)) for given in inputs]
        segments, norms = begin(inputs)
        num_workers = len(communicator.local_workers)
        sent = [np.zeros((num_workers, len(segment.shapes)), dtype=np.int64) for segment in segments]
        messages: list[list[tuple[str, np.ndarray]]] = [[] for _ in range(num_workers)]
        longest = 0
        for segment, more, own in zip(segments, further, sent, strict=True):
            for number, layer in self._layers(segment):
                longest += 4 + layer.num_bins * np.dtype(layer.count_type).itemsize
                longest += layer.size * np.dtype(layer.code_type).itemsize
                part = slice(layer.start, layer.start + layer.size)
                for row in range(num_workers):
                    parts = _encode(segment.rows[row, part], more[row, part], layer)
                    messages[row] += [(METADATA, parts[0]), (METADATA, parts[1]), (CODES, parts[2])]
                    own[row, number] = len(parts[2]) // np.dtype(layer.code_type).itemsize
        means = self._means(communicator.all_gather_messages(messages, longest), segments)
        errors = backend_of(segments[0].rows.device).squared_norms(segments)
        compressed = {
            segment.name: Compressed(own, error, norm)
            for segment, own, error, norm in zip(segments, sent, errors, norms, strict=True)
        }
        return Reduced(means, {segment.name: segment.rows for segment in segments}, compressed), state

    def _layers(self, segment: Segment) -> Iterator[tuple[int, _Layer]]:
        """The layers that have entries, with their numbers."""
        for number, (shape, edges) in enumerate(zip(segment.shapes, pairwise(segment.edges), strict=True)):
            start, stop = map(int, edges)
            if stop > start:
                longest = self.conv_bin if len(shape) > 2 else self.other_bin
                yield number, _Layer(start, stop - start, longest)

    def _means(self, messages: list[np.ndarray], segments: list[Segment]) -> dict[str, Tensor]:
        """The means of all workers' messages, which are added in worker order."""
        totals = {}
        for segment in segments:
            wide = torch.promote_types(segment.rows.dtype, torch.float32)
            totals[segment.name] = np.zeros(segment.rows.shape[1], dtype=_NUMPY[wide])
        for message in messages:
            at = 0
            for segment in segments:
                for _, layer in self._layers(segment):
                    total = totals[segment.name][layer.start : layer.start + layer.size]
                    at = _add(message, at, layer, total)
        means = {}
        for segment in segments:
            mean = divide(torch.from_numpy(totals[segment.name]), len(messages))
            means[segment.name] = mean.to(segment.rows, non_blocking=True)
        return means


_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


def _encode(p: Tensor, more: Tensor, layer: _Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One worker's magnitude, counts and codes for a layer, as bytes; leaves p - C(p) in ``p`` [d].

    p + ``more`` is what is compared with the largest magnitudes.
    """
    own = p.to(torch.promote_types(p.dtype, torch.float32))
    bins = pad(own.abs(), (0, -layer.size % layer.bin)).view(-1, layer.bin)
    largest = bins.amax(1)
    magnitude = largest.double().mean().to(torch.float32)
    limits = largest.repeat_interleave(layer.bin)[: layer.size]
    where = torch.nonzero(((own + more.to(own.dtype)).abs() >= limits) & (own != 0)).squeeze(1)
    negative = own[where] < 0
    values = torch.where(negative, -magnitude, magnitude)
    p[where] -= values.to(p.dtype)
    signed = (where << 1 | negative).cpu().numpy()
    positions = signed >> 1
    counts: np.ndarray = np.bincount(positions // layer.bin, minlength=layer.num_bins).astype(
        layer.count_type
    )
    codes = (positions % layer.bin << 1 | signed & 1).astype(layer.code_type)
    sized = magnitude.cpu().reshape(1).numpy()
    return sized.view(np.uint8), counts.view(np.uint8), codes.view(np.uint8)


def _add(message: np.ndarray, at: int, layer: _Layer, total: np.ndarray) -> int:
    """Add the decoded part of a message from byte ``at`` on to ``total`` [d]; returns where it ends."""

    def read(kind: Any, count: int) -> np.ndarray:
        nonlocal at
        begin, at = at, at + count * np.dtype(kind).itemsize
        return np.frombuffer(message[begin:at].tobytes(), dtype=kind)

    (magnitude,) = read(np.float32, 1)
    counts = read(layer.count_type, layer.num_bins).astype(np.int64)
    codes = read(layer.code_type, int(counts.sum())).astype(np.int64)
    positions = np.repeat(np.arange(layer.num_bins) * layer.bin, counts) + (codes >> 1)
    total[positions] += np.where(codes & 1, -magnitude, magnitude)
    return at
