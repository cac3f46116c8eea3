"""AdaComp: the entries that would reach the largest magnitude of their bin with the gradient added once more.

Chen, Choi, Brand, Agrawal, Zhang and Gopalakrishnan, AAAI 2018, https://arxiv.org/abs/1712.02679. Each layer
is cut into bins of ``conv_bin`` (kernels of convolutions) or ``other_bin`` entries. With p = e + g, the
residual and the gradient, an entry is sent if |p + (``scale_factor`` - 1) g| is at least the largest |p| of
its bin. All sent entries of a layer get the sign of p and one magnitude, the mean over bins of the largest
|p|.

Biased; the number of entries sent depends on the gradients and cannot be set. Without error feedback e is 0.
A sent entry takes 1 byte for its place in the bin and its sign, or 2 bytes in bins of more than 128 entries.
A bin takes 1 byte for the number of its sent entries, or 2 in bins of more than 255 entries. A layer takes 4
bytes for its magnitude, and a segment 4 bytes for a count. Deviations from the paper: each bin has a count,
because the paper does not say how a receiver separates the bins; entries of 0 are not sent.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    METADATA,
    Communicator,
    Input,
    Knob,
    Reduced,
    Reducer,
    Segment,
    State,
    Step,
    Traits,
    backend_of,
    is_count,
    is_real,
    require,
)
from compressors.core.codec import Compressed
from compressors.core.payloads import divide
from compressors.parts.bins import LONGEST, BinnedLayer, Message, positions_in
from compressors.parts.rounds import begin

CODES = "codes"  # the kind of the bytes for places and signs


class Messages(NamedTuple):
    """One worker's messages for the layers of a segment."""

    layers: list[BinnedLayer]
    of_layers: list[Message]

    def positions(self, size: int) -> Tensor:
        """Positions of the entries sent, [k] int64 in ``range(size)``."""
        pairs = zip(self.layers, self.of_layers, strict=True)
        found = [positions_in(layer, message) + layer.start for layer, message in pairs]
        return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


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
    knob = Knob("conv_bin", {"other_bin": 10.0}, slope=-1.0, dense_at=1.0, highest=LONGEST / 10)
    examples = ({"other_bin": 50},)
    waits = ("2", "2", "")

    def __post_init__(self) -> None:
        for name in ("conv_bin", "other_bin"):
            value = getattr(self, name)
            valid = is_count(value) and value <= LONGEST
            require(valid, f"AdaComp.{name}", f"an integer from 1 to {LONGEST}", value)
        valid = is_real(self.scale_factor) and self.scale_factor >= 1
        require(valid, "AdaComp.scale_factor", "a finite number >= 1", self.scale_factor)

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        segments, norms = begin(inputs)
        backend = backend_of(inputs[0].rows.device)
        layers = [self._layers(segment) for segment in segments]
        encoded, sent = [], []
        factors = [given.scale * (self.scale_factor - 1) for given in inputs]
        messages = backend.encode_bins(inputs, layers, factors)
        for given, own, of_workers in zip(inputs, layers, messages, strict=True):
            counts = np.zeros((len(of_workers), len(given.segment.shapes)), dtype=np.int64)
            counts[:, [layer.number for layer in own]] = [
                [len(message.codes) for message in row] for row in of_workers
            ]
            encoded.append([_as_bytes(row, given.rows.device) for row in of_workers])
            sent.append(counts)
        arrived = _gathered(encoded, 2 * max(given.size for given in inputs), communicator)
        means = self._means(arrived, inputs, layers)
        errors = backend.squared_norms(segments)
        compressed = {
            segment.name: Compressed(counts, error, norm, [Messages(own, row) for row in of_workers])
            for segment, counts, error, norm, own, of_workers in zip(
                segments, sent, errors, norms, layers, messages, strict=True
            )
        }
        return Reduced(means, {segment.name: segment.rows for segment in segments}, compressed), state

    def _layers(self, segment: Segment) -> list[BinnedLayer]:
        """The layers that have entries."""
        found = []
        for number, (shape, edges) in enumerate(zip(segment.shapes, pairwise(segment.edges), strict=True)):
            start, stop = map(int, edges)
            if stop > start:
                bin_size = self.conv_bin if len(shape) > 2 else self.other_bin
                found.append(BinnedLayer(number, start, stop - start, bin_size))
        return found

    def _means(
        self, arrived: list[list[list[Tensor]]], inputs: list[Input], layers: list[list[BinnedLayer]]
    ) -> dict[str, Tensor]:
        """The means of all workers' messages [n][S], which are added in worker order."""
        means, backend = {}, backend_of(inputs[0].rows.device)
        numbers = _numbers(arrived, layers)
        for segment, (given, own) in enumerate(zip(inputs, layers, strict=True)):
            total = _zeros(given)
            for of_segments, sent in zip(arrived, numbers, strict=True):
                messages = _messages(of_segments[segment], own, sent[segment])
                for layer, message in zip(own, messages, strict=True):
                    backend.add_bins(message, layer, total[layer.start : layer.start + layer.size])
            means[given.name] = divide(total, len(arrived)).to(given.rows.dtype)
        return means


def _zeros(given: Input) -> Tensor:
    """Memory for the sum, [d]: a gradient that is not needed any more, or a new tensor."""
    wide = torch.promote_types(given.rows.dtype, torch.float32)
    gradient = given.segment.rows[0]
    if given.memory is not None and gradient.dtype == wide and gradient.is_contiguous():
        return gradient.zero_()
    return torch.zeros(given.size, dtype=wide, device=given.rows.device)


def _as_bytes(messages: list[Message], device: torch.device) -> list[Tensor]:
    """Magnitudes, counts and codes of all layers, as bytes."""
    nothing = torch.empty(0, dtype=torch.uint8, device=device)
    fields = zip(*messages, strict=True) if messages else [()] * 3
    return [torch.cat([nothing, *(own.view(torch.uint8) for own in field)]) for field in fields]


def _counts(field: Tensor, layers: list[BinnedLayer]) -> list[Tensor]:
    """The numbers of entries of the bins of each layer, from the joined bytes of all layers."""
    sizes = [layer.num_bins * layer.count_type.itemsize for layer in layers]
    return [_read(own, layer.count_type) for own, layer in zip(field.split(sizes), layers, strict=True)]


def _read(field: Tensor, dtype: torch.dtype) -> Tensor:
    return field.clone().view(dtype)  # a view of the bytes may begin at an odd address


def _numbers(arrived: list[list[list[Tensor]]], layers: list[list[BinnedLayer]]) -> list[list[list[int]]]:
    """Number of entries of each layer, by worker and segment; the host waits once."""
    counts = [[_counts(f[1], own) for f, own in zip(row, layers, strict=True)] for row in arrived]
    sums = [own.long().sum() for row in counts for of_segment in row for own in of_segment]
    known = iter(torch.stack(sums).tolist() if sums else [])
    return [[[next(known) for _ in of_segment] for of_segment in row] for row in counts]


def _messages(fields: list[Tensor], layers: list[BinnedLayer], numbers: list[int]) -> list[Message]:
    """The message of each layer, from the joined bytes of all layers, and the layers' ``numbers``."""
    magnitudes, counts, codes = fields
    sizes = [number * layer.code_type.itemsize for number, layer in zip(numbers, layers, strict=True)]
    rows = zip(magnitudes.split(4), _counts(counts, layers), codes.split(sizes), layers, strict=True)
    return [
        Message(_read(magnitude, torch.float32), of_bins, _read(own, layer.code_type))
        for magnitude, of_bins, own, layer in rows
    ]


def _gathered(
    encoded: list[list[list[Tensor]]], largest: int, communicator: Communicator
) -> list[list[list[Tensor]]]:
    """Magnitudes, counts and codes of all workers, [n][S][3], from those of the local ones, [S][W][3]."""
    own = np.array([[len(parts[2]) for parts in of_workers] for of_workers in encoded])
    lengths = communicator.all_gather_counts(own, largest, of_elements=False)  # an entry may take 2 bytes
    arrived = []
    for field, kind in enumerate((METADATA, METADATA, CODES)):
        fixed = np.array([[len(of_workers[0][field])] * communicator.size for of_workers in encoded])
        each = lengths if kind == CODES else fixed
        joined = [torch.cat([parts[field] for parts in row]) for row in encoded]
        (fields,) = communicator.all_gather_ragged([joined], each, [kind])
        arrived.append(torch.cat(list(fields)).split(each.ravel().tolist()))
    size = communicator.size
    return [
        [[field[segment * size + worker] for field in arrived] for segment in range(len(encoded))]
        for worker in range(size)
    ]
