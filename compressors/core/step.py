"""The step, as a method knows it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from compressors.core.randomness import derive_seed
from compressors.core.shapes import Shapes


class Step(NamedTuple):
    """What a method may know of the step beside the gradients; equal for every layout."""

    seed: int
    number: int  # counted from 0
    learning_rate: float = 1.0
    epoch: float = 0.0  # epochs done before the step, fractional
    segment: str = ""  # which ``Codec.encode`` is asked for
    shapes: Shapes = ()  # of the layers that lie in it
    worker: int = 0  # whose vector it is

    def layers(self, x: Tensor) -> Sequence[Tensor]:
        """The layers that lie in ``x`` [d], one after the other; all of it where none are named."""
        return x.split([math.prod(shape) for shape in self.shapes] or [x.numel()])

    @property
    def whole_epochs(self) -> int:
        """Epochs that were over before the step; a sum of steps that falls short by rounding counts."""
        return int(self.epoch + 1e-9)

    def derive_seed(self, *, shared: bool) -> int:
        """The seed of this step and segment, the same on all workers or this worker's own."""
        salt = (self.seed, self.number, self.segment)
        return derive_seed("shared", *salt) if shared else derive_seed("own", *salt, self.worker)
