"""What theory promises of a step's compression error, beside the error that really came.

(1 - k / d) ||p||^2 per segment for Top-k, d lambda^2 for hard threshold: each method's own ``error_bound``.
What ``wire.values`` rounds off comes on top, in the error alone.
"""

from dataclasses import dataclass

import torch

from compressors.api import Codec
from trainers.look import Look


@dataclass(frozen=True)
class Bound:
    """The bound of this step's ``compression/error``, in its unit. Cost: a pass over p of all workers."""

    def require_codec(self, codec: Codec | None) -> None:
        """Raise ``ValueError`` where there is no method with a bound."""
        if codec is None:
            raise ValueError(
                "diagnostics=bound needs a compressor that loses something, and has a bound of what; "
                "selection_error goes with all"
            )

    def measure(self, look: Look, codec: Codec) -> dict[str, float]:
        """Squared L2: the sum over segments, the mean over all n workers."""
        rows = range(len(look.communicator.ranks))
        codecs = [codec.of_segment(s.name) if hasattr(codec, "of_segment") else codec for s in look.segments]
        pairs = list(zip(codecs, look.segments, strict=True))
        bounds = [sum(own.error_bound(look.input_of(s, row)) for own, s in pairs) for row in rows]
        everyones = look.communicator.collect(torch.tensor(bounds, dtype=torch.float64))
        return {"diagnostics/error_bound": everyones.mean().item()}
