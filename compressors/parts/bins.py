"""Signs of entries of bins, with one magnitude per layer: the messages of ``adacomp.py``."""

from collections.abc import Callable, Sequence
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


Encode = Callable[[Tensor, Tensor, float, BinnedLayer], Message]


def encode_bins(
    given: Input, layers: Sequence[BinnedLayer], gradient_factor: float, encode: Encode
) -> list[list[Message]]:
    """The local workers' messages for the layers of p in ``given.rows``, where p - C(p) replaces p.

    ``encode`` adds ``gradient_factor`` times the gradient g to p before it compares an entry with its bin.
    """
    rows = zip(given.rows, given.segment.rows, strict=True)
    return [
        [
            encode(
                p[own.start : own.start + own.size], g[own.start : own.start + own.size], gradient_factor, own
            )
            for own in layers
        ]
        for p, g in rows
    ]


def encode_layer(p: Tensor, g: Tensor, gradient_factor: float, layer: BinnedLayer) -> Message:
    """The message for ``p`` [d], which becomes p - C(p): the definition for the compiled loops.

    An entry is sent if |p + ``gradient_factor`` g| is at least the largest |p| of its bin. ``g`` may be
    ``p``.
    """
    own = p.to(torch.promote_types(p.dtype, torch.float32))
    bins = pad(own.abs(), (0, -layer.size % layer.bin_size)).view(-1, layer.bin_size)
    largest = bins.amax(1)
    magnitude = mean_of_bins(largest)
    limits = largest.repeat_interleave(layer.bin_size)[: layer.size]
    moved = own + (g * gradient_factor).to(own.dtype)
    where = torch.nonzero((moved.abs() >= limits) & (own != 0)).squeeze(1)
    negative = own[where] < 0
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
    signed = message.codes.long()
    starts = torch.arange(0, layer.size, layer.bin_size, device=total.device)
    starts = starts.repeat_interleave(message.counts.long(), output_size=len(signed))
    values = torch.where(signed & 1 != 0, -message.magnitude, message.magnitude)
    total.index_add_(0, starts + (signed >> 1), values.to(total.dtype))
