"""MiCRO: every worker chooses the entries above a threshold in a part of its own, for all workers.

Yoon and Oh, 2023, https://arxiv.org/abs/2310.00967. A segment has n parts of equal length. In step t worker i
chooses the entries of its p with |p| >= threshold in part (i + t) mod n. The chosen positions are gathered,
and all workers send their values at these positions. With k' the number of all positions of the last step and
k = max(1, floor(density * d)), the threshold is multiplied by 1 + ``rate`` if k' > 1.1 k, by 1 - ``rate`` if
k' < k / 1.1, and otherwise by 1 + ``rate`` / 4 if k' > k, or 1 - ``rate`` / 4. It starts at 1 / (2 sqrt(k)),
the rule of Sahu et al., 2021.

Biased. Per element: 4 bytes for an fp32 value from every worker, all-reduced, and a 4-byte index from the
worker that chose it; a 4-byte count per segment and worker. The method is meant for ``scope=global``, which
has one threshold. Deviations from the authors' code: a worker may choose nothing, where that code sends one
entry; between k / 1.1 and 1.1 k that code raises the threshold even if k' < k.
"""

import math
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
    Shared,
    Sparse,
    State,
    Step,
    Traits,
    is_real,
    require,
    squared_norm,
)
from compressors.core.above import at_least
from compressors.core.exclusive import choose_everywhere, vector

_CLOSE = 1.1  # ratio of k' to k, or of k to k', within which the threshold changes slowly


class Thresholds(NamedTuple):
    """The state, equal on all workers: threshold and k' of each segment; negative before the first step."""

    by_segment: Shared  # of dict[str, Tensor], [2] float64 on the CPU


@dataclass(frozen=True, kw_only=True)
class MiCRO(CodecWithDensity):
    """Sends all workers' entries at the positions that one worker chooses in each part of a segment.

    A higher ``rate`` follows the density faster and varies more. ``threshold`` is the first one; null takes
    1 / (2 sqrt(k)). ``schedule`` varies the density over the epochs. Raises ``ValueError`` for a density
    outside (0, 1], a rate outside (0, 1) and a negative threshold.
    """

    rate: float = 0.005
    threshold: float | None = None

    payload = Sparse
    traits = Traits(linear=True, seeded=True, lossless_at={"threshold": 0.0})
    examples = ({"density": 0.1, "threshold": 1.0},)

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = is_real(self.rate) and 0 < self.rate < 1
        require(valid, "MiCRO.rate", "in (0, 1)", self.rate)
        valid = self.threshold is None or (is_real(self.threshold) and self.threshold >= 0)
        require(valid, "MiCRO.threshold", "a finite number >= 0, or null", self.threshold)

    def init(self, segments: list[Segment]) -> Thresholds:
        unknown = torch.full((2,), -1.0, dtype=torch.float64)
        return Thresholds(Shared({s.name: unknown.clone() for s in segments}))

    def encode(self, x: Tensor, step: Step) -> Sparse:
        raise TypeError("MiCRO sends what all workers choose together: choose() says where")

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()

    def choose(
        self, inputs: list[Input], state: Thresholds, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], State]:
        positions = []
        for given in inputs:
            own, k = state.by_segment.state[given.name], self.elements_at(step, given.size)
            own[0] = self._scaled(own[0].item(), own[1].item(), k)
            positions.append(_reaching(given, own[0].item(), step, communicator))
        codecs, counts = choose_everywhere(inputs, positions, communicator)
        for given, sent in zip(inputs, counts.sum(1).tolist(), strict=True):
            state.by_segment.state[given.name][1] = sent
        return codecs, state

    def _scaled(self, threshold: float, sent: float, k: int) -> float:
        """The threshold for a step, from that of the last step, which sent ``sent`` elements."""
        if threshold < 0:
            return 1 / (2 * math.sqrt(k)) if self.threshold is None else self.threshold
        close = k <= _CLOSE * sent and sent <= _CLOSE * k
        change = self.rate / 4 if close else self.rate
        return threshold * (1 + change if sent > k else 1 - change)


def _reaching(given: Input, threshold: float, step: Step, communicator: Communicator) -> list[Tensor]:
    """Positions [.] int64 that each local worker chooses."""
    found, number = [], communicator.size
    for row, worker in enumerate(communicator.local_workers):
        part = (worker + step.number) % number
        begin, end = given.size * part // number, given.size * (part + 1) // number
        found.append(at_least(threshold, vector(given, row, begin, end)) + begin)
    return found
