"""Signs of entries of bins, with one magnitude per layer: the messages of ``adacomp.py``."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from compressors.core.segments import Input

LONGEST = 2**15  # entries of a bin: 15 bits for the place and one for the sign


class BinnedLayer(NamedTuple):
    """A layer of at least one entry, divided into bins."""

    number: int  # of the layer in its segment
    start: int  # of its first entry, in its segment
    size: int
    bin_size: int  # number of entries of a bin

    @property
    def num_bins(self) -> int:
        return -(-self.size // self.bin_size)

    @property
    def code_type(self) -> torch.dtype:
        return torch.uint8 if self.bin_size <= 128 else torch.uint16

    @property
    def count_type(self) -> torch.dtype:
        return torch.uint8 if self.bin_size <= 255 else torch.uint16


class Message(NamedTuple):
    """One worker's message for a layer."""

    magnitude: Tensor  # [1] float32, of all entries sent
    counts: Tensor  # [num_bins], entries sent of each bin
    codes: Tensor  # [k], 2 place + (p < 0) of each entry sent, with its place in the bin


class Marked(NamedTuple):
    """The entries of a layer that a worker sends."""

    marks: Tensor  # [d] bool
    magnitude: Tensor  # scalar float32


def layers_of(
    given: Input, layers: Sequence[BinnedLayer]
) -> Iterator[list[tuple[Tensor, Tensor, BinnedLayer]]]:
    """For each local worker p and the gradient of each of the layers, [d] each, and the layer."""
    for p, g in zip(given.rows, given.segment.rows, strict=True):
        cuts = [slice(own.start, own.start + own.size) for own in layers]
        yield [(p[cut], g[cut], own) for cut, own in zip(cuts, layers, strict=True)]


def encode_bins(
    inputs: list[Input], layers: Sequence[Sequence[BinnedLayer]], factors: Sequence[float]
) -> list[list[list[Message]]]:
    """The local workers' messages for the layers of each segment's p, [S][W], where p - C(p) replaces p.

    The definition for the compiled loops. The host waits once for a GPU.
    """
    rows = [list(layers_of(*own)) for own in zip(inputs, layers, strict=True)]
    marked = [
        mark_layer(p, g, factor, layer)
        for of_segment, factor in zip(rows, factors, strict=True)
        for of_worker in of_segment
        for p, g, layer in of_worker
    ]
    numbers = torch.stack([own.marks.sum() for own in marked]).tolist() if marked else []
    known = iter(zip(marked, numbers, strict=True))
    return [
        [[encode_marked(p, *next(known), layer) for p, _, layer in of_worker] for of_worker in of_segment]
        for of_segment in rows
    ]


def mark_layer(p: Tensor, g: Tensor, gradient_factor: float, layer: BinnedLayer) -> Marked:
    """The entries of ``p`` [d] that are sent: |p + ``gradient_factor`` g| is at least the largest |p| of the
    bin."""
    own = p.to(torch.promote_types(p.dtype, torch.float32))
    bins = pad(own.abs(), (0, -layer.size % layer.bin_size)).view(-1, layer.bin_size)
    largest = bins.amax(1)
    limits = largest.repeat_interleave(layer.bin_size)[: layer.size]
    moved = own + (g * gradient_factor).to(own.dtype)
    return Marked((moved.abs() >= limits) & (own != 0), mean_of_bins(largest))


def encode_marked(p: Tensor, marked: Marked, number: int, layer: BinnedLayer) -> Message:
    """The message of the ``number`` marked entries of ``p`` [d], which becomes p - C(p)."""
    where = torch.nonzero_static(marked.marks, size=number).squeeze(1)
    negative, magnitude = p[where] < 0, marked.magnitude
    values = torch.where(negative, -magnitude, magnitude)
    p[where] -= values.to(p.dtype)
    counts = where.new_zeros(layer.num_bins).index_add_(0, where // layer.bin_size, torch.ones_like(where))
    codes = where % layer.bin_size << 1 | negative
    return Message(magnitude.reshape(1), counts.to(layer.count_type), codes.to(layer.code_type))


def mean_of_bins(largest: Tensor) -> Tensor:
    """The magnitude of a layer, float32, from the largest magnitudes of its bins."""
    return largest.double().mean().to(torch.float32)


def add_layer(message: Message, layer: BinnedLayer, total: Tensor) -> None:
    """Add a decoded message to ``total`` [d]: the definition for the compiled loops."""
    values = torch.where(message.codes.long() & 1 != 0, -message.magnitude, message.magnitude)
    total.index_add_(0, positions_in(layer, message), values.to(total.dtype))


def positions_in(layer: BinnedLayer, message: Message) -> Tensor:
    """The positions of the entries sent, [k] int64 in ``range(layer.size)``."""
    starts = torch.arange(0, layer.size, layer.bin_size, device=message.codes.device)
    starts = starts.repeat_interleave(message.counts.long(), output_size=len(message.codes))
    return starts + (message.codes.long() >> 1)
