"""Reused threshold: Top-k's exact threshold, computed every few steps and reused in between.

The estimate of Ok-Topk (Li and Hoefler, 2022, https://arxiv.org/abs/2201.07598, section 3.1.3) without its
collectives, and without the changes by which the authors' code keeps the number near k (``ok_topk.py``).
Biased; the number of elements sent between two searches is not bounded. 8 bytes per sent fp32 element and one
4-byte count per segment, because workers send different numbers of entries.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import (
    Codec,
    CodecWithDensity,
    Communicator,
    Input,
    Segment,
    Sparse,
    Step,
    Traits,
    backend_of,
    is_count,
    require,
    squared_norm,
)
from compressors.parts.above import Above


class Thresholds(NamedTuple):
    """The state of the method."""

    # Threshold per worker, [W, 1] float64 on the CPU; negative before the first search
    by_segment: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class ReusedThreshold(CodecWithDensity):
    """Keeps entries of at least the worker's k-th largest magnitude at its last search.

    k = max(1, floor(density * d)). A search takes place in every ``period``-th step, starting with the first
    one. A longer period takes less time, and sends more or fewer than k entries if magnitudes change in
    between. Raises ``ValueError`` for a density outside (0, 1] and a period below 1.
    """

    period: int = 32  # the paper's value

    payload = Sparse
    traits = Traits(
        ragged=True, individual=True, lossless_at={"density": 1.0, "schedule": "constant", "period": 1}
    )
    examples = ({"density": 0.1}, {"density": 0.1, "period": 2})
    waits = ("2", "S W + 1 + G", "in a step that computes a new threshold")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_count(self.period), "ReusedThreshold.period", "an integer >= 1", self.period)

    def init(self, segments: list[Segment]) -> Thresholds:
        return Thresholds({s.name: torch.full((len(s.rows), 1), -1.0, dtype=torch.float64) for s in segments})

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()  # in the worst case nothing is sent

    def choose(
        self, inputs: list[Input], state: Thresholds, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], Thresholds]:
        is_due = step.exchange % self.period == 0
        due = [given for given in inputs if is_due or (state.by_segment[given.name] < 0).any()]
        if due:
            found = self._search(due, step).cpu()  # the only GPU wait
            for given, own in zip(due, found, strict=True):
                state.by_segment[given.name].copy_(own.unsqueeze(1))
        thresholds = [state.by_segment[given.name].flatten().tolist() for given in inputs]
        return [
            Above(thresholds=tuple(own), first=communicator.local_workers[0]) for own in thresholds
        ], state

    def _search(self, inputs: list[Input], step: Step) -> Tensor:
        """Every worker's k-th largest magnitude of every segment, [S, W] float64."""
        rows = [(given, row) for given in inputs for row in range(len(given.rows))]
        numbers = [self.elements_at(step, given.size) for given, _ in rows]
        places = backend_of(inputs[0].rows.device).search_largest(inputs, numbers)
        found = torch.stack([_smallest(*row, where) for row, where in zip(rows, places, strict=True)])
        is_part = torch.tensor([k < given.size for k, (given, _) in zip(numbers, rows, strict=True)])
        floor = torch.finfo(inputs[0].rows.dtype).smallest_normal  # zeros are sent only if k is d
        floors = is_part.to(found.device, torch.float64, non_blocking=True) * floor
        return found.maximum(floors).view(len(inputs), -1)


def _smallest(given: Input, row: int, where: Tensor) -> Tensor:
    """The smallest magnitude at the positions ``where`` [k] of a worker's p, scalar float64."""
    return given.entries(row, where).abs().amin().double()
