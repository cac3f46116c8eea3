"""No compression: dense data-parallel SGD, the baseline of every comparison."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from compressors.api import Context, Reduced, Segment


@dataclass(frozen=True, kw_only=True)
class NoCompression:
    """Every worker hands its whole gradient to one all-reduce.

    Lossless; bytes per element: those of the dtype. It is a reducer and no codec, because a codec
    would copy every gradient once more.
    """

    lossless = True

    def init(self, segments: list[Segment]) -> tuple[()]:
        return ()

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        means = communicator.mean([segment.rows for segment in segments], _add_up)
        for segment in segments:
            segment.rows.zero_()
        names = [segment.name for segment in segments]
        sent = [np.diff(s.edges)[None].repeat(len(s.rows), 0) for s in segments]
        remainder = {segment.name: segment.rows for segment in segments}
        mean, counts = dict(zip(names, means, strict=True)), dict(zip(names, sent, strict=True))
        return Reduced(mean, remainder, counts, has_a_value_each=True, exact=True), state


def _add_up(rows: Tensor) -> Tensor:
    return rows.sum(0)
