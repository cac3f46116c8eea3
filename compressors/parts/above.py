"""Selection of the entries of at least a threshold in magnitude."""

from dataclasses import dataclass

from torch import Tensor

from compressors.core.codec import Codec, Traits
from compressors.core.norms import squared_norm
from compressors.core.payloads import Sparse, take
from compressors.core.rules import AtLeast
from compressors.core.segments import Step
from compressors.parts.searches import at_least


@dataclass(frozen=True, kw_only=True)
class Above(Codec):
    """Keeps x_i iff |x_i| >= the worker's threshold; ``first`` is the id of the first local worker."""

    thresholds: tuple[float, ...]
    first: int

    payload = Sparse
    traits = Traits(ragged=True)

    def rule(self, size: int, step: Step, workers: range) -> AtLeast:
        return AtLeast(self.thresholds)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        return take(x, at_least(self.thresholds[step.worker - self.first], x))

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()
