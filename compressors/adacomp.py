"""AdaComp: the entries that would exceed the largest of their bin if the gradient came once more.

Chen, Choi, Brand, Agrawal, Zhang and Gopalakrishnan, AAAI 2018, https://arxiv.org/abs/1712.02679. Each layer
is cut into bins of ``conv_bin`` (kernels of convolutions) or ``other_bin`` entries. With p = e + g, the
residual and the gradient, an entry is sent if |p + (``scale_factor`` - 1) g| is at least the largest |p| of
its bin. All sent entries of a layer get the sign of p and one magnitude, the mean over bins of the largest
|p|.

Biased; the number sent follows the activity of the bins and cannot be set. Without error feedback e is 0. A
sent entry takes 1 byte for its place in the bin and its sign, or 2 bytes in bins of more than 128 entries; a
bin takes 1 byte for the number of its entries, or 2 in bins of more than 255 entries, and a layer takes 4
bytes for its magnitude. A segment has a count of 4 bytes. Deviations from the paper: the counts of bins,
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
        told: list[list[list[np.ndarray]]] = []  # [S][W], magnitudes, counts and codes of each
        for segment, more, own in zip(segments, further, sent, strict=True):
            of_workers = []
            for row in range(num_workers):
                parts: list[list[np.ndarray]] = [[_NOTHING], [_NOTHING], [_NOTHING]]
                for number, layer in self._layers(segment):
                    part = slice(layer.start, layer.start + layer.size)
                    found = _encode(segment.rows[row, part], more[row, part], layer)
                    own[row, number] = len(found[2]) // np.dtype(layer.code_type).itemsize
                    for kind, one in zip(parts, found, strict=True):
                        kind.append(one)
                of_workers.append([np.concatenate(kind) for kind in parts])
            told.append(of_workers)
        messages = _gathered(told, 2 * max(segment.rows.shape[1] for segment in segments), communicator)
        means = self._means(messages, segments)
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

    def _means(self, messages: list[list[list[np.ndarray]]], segments: list[Segment]) -> dict[str, Tensor]:
        """The means of all workers' messages, which are added in worker order."""
        totals = {}
        for segment in segments:
            wide = torch.promote_types(segment.rows.dtype, torch.float32)
            totals[segment.name] = np.zeros(segment.rows.shape[1], dtype=_NUMPY[wide])
        for of_segments in messages:
            for segment, (magnitudes, counts, codes) in zip(segments, of_segments, strict=True):
                for _, layer in self._layers(segment):
                    total = totals[segment.name][layer.start : layer.start + layer.size]
                    magnitudes, counts, codes = _add(magnitudes, counts, codes, layer, total)
        means = {}
        for segment in segments:
            mean = divide(torch.from_numpy(totals[segment.name]), len(messages))
            means[segment.name] = mean.to(segment.rows, non_blocking=True)
        return means


_NOTHING = np.empty(0, dtype=np.uint8)
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


def _gathered(
    told: list[list[list[np.ndarray]]], largest: int, communicator: Communicator
) -> list[list[list[np.ndarray]]]:
    """Magnitudes, counts and codes of all workers, [n][S][3], from those of the local ones, [S][W][3]."""
    own = np.array([[len(parts[2]) for parts in of_workers] for of_workers in told])
    lengths = communicator.all_gather_counts(own, largest)
    arrived = []
    for field, kind in enumerate((METADATA, METADATA, CODES)):
        fixed = np.array([[len(of_workers[0][field])] * communicator.size for of_workers in told])
        each = lengths if kind == CODES else fixed
        joined = [torch.from_numpy(np.concatenate([parts[field] for parts in row])) for row in told]
        there = [own_field.to(communicator.device, non_blocking=True) for own_field in joined]
        (fields,) = communicator.all_gather_ragged([there], each, [kind])
        whole = torch.cat(list(fields)).cpu().numpy()  # one wait for a GPU
        arrived.append(np.split(whole, np.cumsum(each)[:-1]))
    size = communicator.size
    return [
        [[field[segment * size + worker] for field in arrived] for segment in range(len(told))]
        for worker in range(size)
    ]


def _add(
    magnitudes: np.ndarray, counts: np.ndarray, codes: np.ndarray, layer: _Layer, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add the decoded bytes of a layer to ``total`` [d]; returns the bytes of further layers."""

    def read(field: np.ndarray, kind: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
        stop = count * np.dtype(kind).itemsize
        return np.frombuffer(field[:stop].tobytes(), dtype=kind), field[stop:]

    (magnitude,), magnitudes = read(magnitudes, np.float32, 1)
    of_bins, counts = read(counts, layer.count_type, layer.num_bins)
    own, codes = read(codes, layer.code_type, int(of_bins.astype(np.int64).sum()))
    signed = own.astype(np.int64)
    positions = np.repeat(np.arange(layer.num_bins) * layer.bin, of_bins) + (signed >> 1)
    total[positions] += np.where(signed & 1, -magnitude, magnitude)
    return magnitudes, counts, codes
