"""No compression: dense data-parallel SGD, the baseline of every comparison."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
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
        names = [segment.name for segment in segments]
        sent = [np.diff(s.edges)[None].repeat(len(s.rows), 0) for s in segments]
        # Of what is handed over whole nothing is left: no memory to be zeroed, read and summed in every step.
        remainder = [s.rows.new_zeros(1, 1).expand_as(s.rows) for s in segments]
        error = [
            torch.zeros(of.shape, dtype=torch.float64, device=s.rows.device)
            for of, s in zip(sent, segments, strict=True)
        ]
        mean, left, counts, errors = (
            dict(zip(names, values, strict=True)) for values in (means, remainder, sent, error)
        )
        return Reduced(mean, left, counts, error=errors, has_a_value_each=True, exact=True), state


def _add_up(rows: Tensor) -> Tensor:
    return rows.sum(0) if len(rows) > 1 else rows[0]
