"""CLT-k: a leader chooses its k largest magnitudes, and all workers send their entries at these positions.

Chen et al., 2020, "ScaleCom", https://arxiv.org/abs/2104.11125. The leader changes in every step, cyclically.
Biased; the paper shows a contraction if the workers' residuals are similar. Per element sent: 4 bytes for an
fp32 value from every worker, all-reduced, and a 4-byte index from the leader, broadcast once. ScaleCom's
low-pass filter on the residual is part of the feedback (``ErrorFeedback.beta``): ``feedback=low_pass``, the
default of ``compressor=clt_k``, with 0.1, the paper's value for large batches. With 1, the paper's value for
standard batches, it is error feedback. Deviation from the paper: the leader selects the Top-k of the whole
segment; in the paper it selects the largest magnitude of each chunk.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.api import (
    Codec,
    CodecWithDensity,
    Communicator,
    Input,
    Segment,
    Sparse,
    State,
    Step,
    Traits,
    backend_of,
    inputs_of,
    squared_norm,
)
from compressors.core.payloads import index_dtype
from compressors.parts.chosen import Chosen
from compressors.top_k import TopK


@dataclass(frozen=True, kw_only=True)
class CLTK(CodecWithDensity):
    """Sends k = max(1, floor(density * d)) entries of every segment, at the leader's largest magnitudes.

    The leader of step t is worker t mod n. A higher density sends more and keeps a smaller residual;
    ``schedule`` varies it over the epochs. Raises ``ValueError`` for a density outside (0, 1].
    """

    payload = Sparse
    traits = Traits(linear=True, seeded=True, lossless_at={"density": 1.0, "schedule": "constant"})
    examples = ({"density": 0.1},)
    usual_feedback = "low_pass"

    def error_bound(self, x: Tensor, step: Step) -> float:
        """||x||^2: in the worst case all entries at the leader's positions are 0."""
        return squared_norm(x).item()

    def choose(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], State]:
        leader, top_k = step.exchange % communicator.size, TopK(density=self.density_at(step))
        counts = [self.elements_at(step, given.size) for given in inputs]
        kind = index_dtype(max(given.size for given in inputs))
        indices = torch.empty(sum(counts), dtype=kind, device=communicator.device)
        if leader in communicator.local_workers:
            with communicator.leading():
                row = communicator.local_workers.index(leader)
                # One layer each: nobody needs the counts of the layers, for which the host would wait.
                own = inputs_of([Segment(x.name, x.vector(row)[None], ((x.size,),)) for x in inputs])
                backend = backend_of(own[0].rows.device)
                found = backend.compress([top_k] * len(own), own, step, range(leader, leader + 1))
                indices = torch.cat([compressed.payloads[0].indices for compressed in found])
        chosen = communicator.broadcast_from(leader, indices, "indices").cpu()  # the only wait for a GPU
        return [Chosen(where=part.long().numpy()) for part in chosen.split(counts)], state
