"""MiCRO: every worker chooses the entries above a threshold in a part of its own, for all workers.

Yoon and Oh, 2023, https://arxiv.org/abs/2310.00967. A segment has n parts of equal length. In step t worker i
chooses the entries of its p with |p| >= threshold in part (i + t) mod n. The chosen positions are gathered,
and all workers send their values at these positions. Let k' be the number of positions that all workers chose
in the last step, and k = max(1, floor(density * d)). The threshold is multiplied by 1 + ``rate`` if
k' > 1.1 k, by 1 - ``rate`` if k' < k / 1.1, and otherwise by 1 + ``rate`` / 4 if k' > k, else by
1 - ``rate`` / 4. It starts at 1 / (2 sqrt(k)), the rule of Sahu et al., 2021.

Biased. Per element: 4 bytes for an fp32 value from every worker, all-reduced, and a 4-byte index from the
worker that chose it; a 4-byte count per segment and worker. The method is meant for ``scope=global``, which
has one threshold. Deviations from the authors' code: a worker may choose nothing, where that code sends one
entry; between k / 1.1 and 1.1 k that code raises the threshold even if k' < k.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    Codec,
    CodecWithDensity,
    Communicator,
    Input,
    Segment,
    Shared,
    Sparse,
    State,
    Step,
    Traits,
    backend_of,
    is_real,
    require,
    squared_norm,
)
from compressors.parts.exclusive import choose_everywhere
from compressors.parts.searches import narrowed

_CLOSE = 1.1  # ratio of k' to k, or of k to k', within which the threshold changes slowly


class Thresholds(NamedTuple):
    """The state, equal on all workers: threshold and k' of each segment; negative before the first step."""

    by_segment: Shared  # of dict[str, Tensor], [2] float64 on the CPU


@dataclass(frozen=True, kw_only=True)
class MiCRO(CodecWithDensity):
    """Sends all workers' entries at the positions that one worker chooses in each part of a segment.

    With a higher ``rate`` the density approaches its budget faster and varies more.
    ``first_threshold`` is that of the first step; None: 1 / (2 sqrt(k)). ``schedule`` varies the density over
    the epochs. Raises ``ValueError`` for a density outside (0, 1], a rate outside (0, 1) and a negative
    threshold.
    """

    rate: float = 0.005
    first_threshold: float | None = None

    payload = Sparse
    traits = Traits(linear=True, seeded=True, lossless_at={"first_threshold": 0.0})
    examples = ({"density": 0.1, "first_threshold": 1.0},)
    waits = ("2", "S W + 1 + G", "")

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = is_real(self.rate) and 0 < self.rate < 1
        require(valid, "MiCRO.rate", "in (0, 1)", self.rate)
        first = self.first_threshold
        valid = first is None or (is_real(first) and first >= 0)
        require(valid, "MiCRO.first_threshold", "a finite number >= 0, or null", first)

    def init(self, segments: list[Segment]) -> Thresholds:
        unknown = torch.full((2,), -1.0, dtype=torch.float64)
        return Thresholds(Shared({s.name: unknown.clone() for s in segments}))

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()

    def choose(
        self, inputs: list[Input], state: Thresholds, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], State]:
        parts: list[Input] = []
        thresholds: list[float] = []
        begins: list[int] = []
        for given in inputs:
            own, k = state.by_segment.state[given.name], self.elements_at(step, given.size)
            own[0] = self._scaled(own[0].item(), own[1].item(), k)
            for row, worker in enumerate(communicator.local_workers):
                begin, end = part_of(given.size, worker + step.exchange, communicator.size)
                parts.append(narrowed(given, row, begin, end))
                thresholds.append(own[0].item())
                begins.append(begin)
        found = backend_of(inputs[0].rows.device).search(parts, np.array(thresholds))
        chosen = [where + begin for where, begin in zip(found, begins, strict=True)]
        number = len(communicator.local_workers)
        positions = [chosen[first : first + number] for first in range(0, len(chosen), number)]
        codecs, counts = choose_everywhere(inputs, positions, communicator)
        for given, sent in zip(inputs, counts.sum(1).tolist(), strict=True):
            state.by_segment.state[given.name][1] = sent
        return codecs, state

    def _scaled(self, threshold: float, sent: float, k: int) -> float:
        """The next threshold, from ``threshold`` of the last step, in which ``sent`` elements were sent."""
        if threshold < 0:
            return 1 / (2 * math.sqrt(k)) if self.first_threshold is None else self.first_threshold
        close = k <= _CLOSE * sent and sent <= _CLOSE * k
        change = self.rate / 4 if close else self.rate
        return threshold * (1 + change if sent > k else 1 - change)


def part_of(size: int, turn: int, number: int) -> tuple[int, int]:
    """Begin and end of part ``turn`` mod ``number`` of ``size`` elements."""
    part = turn % number
    return size * part // number, size * (part + 1) // number
