"""Theoretical bound of a step's compression error.

(1 - k / d) ||p||^2 per segment for Top-k, d lambda^2 for hard threshold: each method's own ``error_bound``.
The bound does not include rounding errors of ``wire.values``.
"""

import math
from dataclasses import dataclass

import torch

from compressors.api import Reduced, Reducer, Segment, Step
from compressors.kernels.reference import step_of
from trainers.comm.communicator import Communicator


@dataclass(frozen=True)
class Bound:
    """The bound of this step's ``compression/error``, in its unit.

    Cost: in a measured step, a copy of p of all workers and a pass over it.
    """

    def require_lossy(self, reducer: Reducer) -> None:
        """Raise ``ValueError`` for a lossless method."""
        if reducer.traits.lossless:
            raise ValueError(
                "diagnostics=bound needs a lossy compressor; selection_error works with all compressors"
            )

    def measure(
        self, before: list[Segment], reduced: Reduced, step: Step, communicator: Communicator
    ) -> dict[str, float]:
        """Squared L2: the sum over segments, the mean over all n workers; empty if a method has no bound.

        ``before`` has p, the compressor's input.
        """
        bounds = torch.zeros(len(communicator.local_workers), dtype=torch.float64)
        for segment in before:
            codec = reduced.compressed[segment.name].codec
            if codec is None:
                return {}
            own = step_of(step, segment)
            for row, (worker, x) in enumerate(zip(communicator.local_workers, segment.rows, strict=True)):
                bounds[row] += codec.error_bound(x, own._replace(worker=worker))
        mean = communicator.collect(bounds).mean().item()
        return {"diagnostics/error_bound": mean} if math.isfinite(mean) else {}
