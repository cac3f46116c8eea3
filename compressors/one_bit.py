"""1-bit SGD: every entry becomes the mean of the non-negative or of the negative entries of its column.

Seide et al., 2014, "1-bit stochastic gradient descent and its application to data-parallel distributed
training of speech DNNs", https://www.isca-archive.org/interspeech_2014/seide14_interspeech.html. The
threshold is 0, and the two means have the smallest squared error of all pairs of values. Biased; error
feedback is a part of the method. 1 bit per element, and 8 bytes per column. A column of the paper's matrices,
[inputs, outputs], has the weights of one output unit: a row of torch's [outputs, inputs, ...]. A layer with
one dimension is one column.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import METADATA, Codec, Field, Step, Traits, require_choice, squared_norm
from compressors.core import rules
from compressors.core.norms import wide_sum
from compressors.encoding.packing import pack, unpack

PER = ("column", "layer")


class Halves(NamedTuple):
    """Packed signs, and the two means of every column."""

    bits: Annotated[Tensor, Field("signs", 8)]  # [ceil(d / 8)] uint8, 1 for an entry >= 0
    means: Annotated[Tensor, Field(METADATA)]  # [2 columns] float32: all of entries >= 0, then all of others


@dataclass(frozen=True, kw_only=True)
class OneBit(Codec):
    """Sends the signs of all entries, and the means of non-negative and of negative entries.

    ``per="column"`` has a pair of means for every output unit of a layer. ``per="layer"`` has one pair for
    the layer: fewer bytes and a larger residual. Raises ``ValueError`` for other values of ``per``.
    """

    per: str = "column"

    payload = Halves
    traits = Traits(exact=False, dense=True)

    def __post_init__(self) -> None:
        require_choice("OneBit.per", PER, self.per)

    def encode(self, x: Tensor, step: Step) -> Halves:
        positive = x >= 0
        means = []
        for entries, above in zip(self._columns(x, step), self._columns(positive, step), strict=True):
            counts = above.sum(1)
            nothing = entries.new_zeros(())
            high, low = wide_sum(entries.where(above, nothing)), wide_sum(entries.where(~above, nothing))
            others = entries.shape[1] - counts
            means.append(torch.stack([high / counts.clamp(min=1), low / others.clamp(min=1)]))
        payload = Halves(pack(positive.to(torch.uint8), 1), torch.cat(means, 1).flatten().to(torch.float32))
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Halves, out: Tensor, step: Step) -> None:
        positive = unpack(payload.bits, 1, out.numel()).to(torch.bool)
        high, low = payload.means.to(out.dtype).view(2, -1)
        begin = 0
        for entries, above in zip(self._columns(out, step), self._columns(positive, step), strict=True):
            own = slice(begin, begin + len(entries))
            entries += torch.where(above, high[own, None], low[own, None])
            begin += len(entries)

    def rounding(self, size: int, step: Step) -> rules.Halves:
        sizes = [np.full(columns, entries) for columns, entries in self._tables(size, step)]
        return rules.Halves(np.concatenate([[0], *sizes]).cumsum())

    def error_bound(self, x: Tensor, step: Step) -> float:
        """The squared distances from the two means of every column, with their rounding."""
        left = 0.0
        for entries in self._columns(x.double(), step):
            for column in entries:
                for half in (column[column >= 0], column[column < 0]):
                    left += squared_norm(half - half.mean()).item() if len(half) else 0.0
        return left + 1e-6 * squared_norm(x).item()

    def _columns(self, x: Tensor, step: Step) -> Iterator[Tensor]:
        """Views [columns, entries] of the layers of ``x`` [d]."""
        for layer, table in zip(step.layers(x), self._tables(len(x), step), strict=True):
            yield layer.view(table)

    def _tables(self, size: int, step: Step) -> Iterator[tuple[int, int]]:
        """Per layer of a vector of ``size`` entries: the number of columns, and of entries per column."""
        for shape in step.shapes or ((size,),):
            entries = math.prod(shape)
            columns = shape[0] if self.per == "column" and len(shape) > 1 and entries else 1
            yield columns, entries // columns
