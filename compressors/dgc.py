"""Deep gradient compression (DGC): the entries above a threshold that is estimated from a sample.

Lin, Han, Mao, Wang and Dally, ICLR 2018, https://arxiv.org/abs/1712.01887. The method has five parts:

- selection (this file): about the k = density d largest magnitudes, by a threshold from a sample of the
  entries. If far more than k entries pass it, the k largest are selected ("hierarchical selection");
- momentum correction and momentum factor masking: ``feedback/momentum_correction.py``;
- warm-up of the density, 25 % to 0.1 % over four epochs: ``budget.schedule=exponential``;
- local gradient clipping: ``trainer.clip_norm``, which the paper sets to the usual norm over sqrt(n).

``compressor=dgc`` chooses the first three and an optimizer in which only the weight decay has momentum.
Biased; ||x - C(x)|| <= ||x||. 8 bytes per sent fp32 element and one 4-byte count per segment. With density 1
all entries are sent, and the method is momentum SGD.

Deviations from the paper: a sample has at least ``EXPECTED`` entries above the threshold on average, because
a layer of a few thousand entries has less than one in a sample of 1 %. "Far more" is ``EXCESS``, as in the
authors' code. Unlike their code (https://github.com/synxlin/deep-gradient-compression), this compresses
vectors too, and does not lower a threshold that too few entries pass. Of up to ``EXCESS`` k entries that
pass, all are sent; their code sends the first k by position.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    CodecWithDensity,
    Sparse,
    Step,
    Traits,
    at_least,
    is_real,
    require,
    squared_norm,
    take,
)
from compressors.core.density import Constant
from compressors.core.rules import AtLeastSampled
from compressors.parts.searches import positions_of_largest

EXPECTED, EXCESS = 10, 1.3


@dataclass(frozen=True, kw_only=True)
class DGC(CodecWithDensity):
    """Keeps about k = max(1, floor(density * d)) entries of every segment, at most ``EXCESS`` times k.

    ``sample`` is the share of the entries among which a threshold is searched; a larger one takes more time,
    and the number of entries sent varies less. ``schedule`` varies the density over the epochs. Raises
    ``ValueError`` for a density or a sample outside (0, 1].
    """

    sample: float = 0.01  # the paper: 0.001 to 0.01

    payload = Sparse
    examples = ({"density": 0.1},)
    usual_feedback = "momentum_correction"
    waits = ("1", "S W + G", "")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_real(self.sample) and 0 < self.sample <= 1, "DGC.sample", "in (0, 1]", self.sample)

    @property
    def traits(self) -> Traits:
        is_lossless = self.density == 1 and isinstance(self.schedule, Constant)
        settings = {} if is_lossless else {"density": 1.0, "schedule": "constant"}
        return Traits(ragged=True, seeded=self.sample < 1, lossless_at=settings)

    def rule(self, size: int, step: Step, workers: range) -> AtLeastSampled:
        k = self.elements_at(step, size)
        if k == size:
            return AtLeastSampled(_ALL.repeat(len(workers), 0), 0, k, k)
        of_workers = [self._places(size, k, step._replace(worker=worker)) for worker in workers]
        places = np.stack([_ALL[0] if own is None else own.numpy() for own in of_workers])
        return AtLeastSampled(places, self._rank(size, k), EXCESS * k, k)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        size = x.numel()
        k = self.elements_at(step, size)
        if k == size:
            return take(x, torch.arange(size, device=x.device))
        positions = at_least(self._threshold(x, k, step), x)
        if len(positions) > EXCESS * k:
            positions = positions[positions_of_largest(x.index_select(0, positions), k)]
        return take(x, positions)

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()  # the worst case: a sample without large entries

    def _threshold(self, x: Tensor, k: int, step: Step) -> Tensor:
        """A scalar, the magnitude that a share k / d of a sample exceeds; above 0, as zeros are not sent."""
        places = self._places(x.numel(), k, step)
        sampled = x if places is None else x.index_select(0, places.to(x.device, non_blocking=True))
        found = sampled.abs().topk(self._rank(x.numel(), k)).values[-1]
        return found.clamp(min=torch.finfo(x.dtype).smallest_normal)

    def _places(self, size: int, k: int, step: Step) -> Tensor | None:
        """The places of the worker's sample, int64; None if the sample is the whole vector."""
        count = self._length(size, k)
        if count == size:
            return None
        stream = torch.Generator().manual_seed(step.derive_seed(shared=False))
        return torch.randint(size, (count,), generator=stream)

    def _length(self, size: int, k: int) -> int:
        return min(size, math.ceil(max(self.sample * size, EXPECTED * size / k)))

    def _rank(self, size: int, k: int) -> int:
        return max(1, round(self._length(size, k) * k / size))


_ALL = np.empty((1, 0), dtype=np.int64)
