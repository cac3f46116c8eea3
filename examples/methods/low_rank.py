"""Low rank: matrices as products of two thin matrices, in two all-reduces; vectors uncompressed.

Vogels et al., 2019 (PowerSGD), https://arxiv.org/abs/1905.13727. Biased. r (m + n) values for m n elements.
"""

from dataclasses import dataclass

import torch

from compressors.api import Communicator, Input, Reduced, Reducer, Segment, Shared, Step, Traits
from compressors.parts.rounds import begin, end, layers_of, mean_of


@dataclass(frozen=True, kw_only=True)
class LowRank(Reducer):
    rank: int

    traits = Traits(exact=False, dense=True)
    examples = ({"rank": 2},)

    def init(self, segments: list[Segment]) -> Shared:  # Q [n, r] of every matrix, equal on all workers
        stream, like = torch.Generator().manual_seed(0), segments[0].rows
        sizes = {i: x.flatten(2).shape[1:] for i, x in layers_of(segments).items() if x.dim() > 2}
        drawn = {i: torch.randn(n, min(self.rank, m, n), generator=stream) for i, (m, n) in sizes.items()}
        return Shared({i: q.to(like) for i, q in drawn.items()})

    def reduce(
        self, inputs: list[Input], state: Shared, step: Step, communicator: Communicator
    ) -> tuple[Reduced, Shared]:
        (segments, norms), last = begin(inputs), state.state
        layers = layers_of(segments)
        first = {name: x.flatten(2) @ last[name] if name in last else x for name, x in layers.items()}
        means = mean_of(first, communicator)
        bases = {n: torch.linalg.qr(means[n].float()).Q.to(means[n]) for n in layers if n in last}
        second = {name: layers[name].flatten(2).mT @ p for name, p in bases.items()}
        last |= mean_of(second, communicator)
        for name, x in layers.items():
            x -= (bases[name] @ second[name].mT).view_as(x) if name in bases else x.clone()
        return end(segments, means | {n: p @ last[n].mT for n, p in bases.items()}, norms), state
