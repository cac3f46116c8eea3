"""Exclusive shares: every worker chooses entries of its own part of a segment, for all workers.

Yoon and Oh, 2023, https://arxiv.org/abs/2307.03500 and https://arxiv.org/abs/2310.00967. The workers' parts
of a step are disjoint, so no position is chosen twice. All positions are gathered; every worker sends its
values at all of them, which an all-reduce averages, and keeps the rest of p in its residual.
"""

import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Codec
from compressors.core.communicator import Communicator
from compressors.core.payloads import index_dtype
from compressors.core.segments import Input
from compressors.parts.chosen import Chosen


def choose_everywhere(
    inputs: list[Input], positions: list[list[Tensor]], communicator: Communicator
) -> tuple[list[Codec], np.ndarray]:
    """The codecs that send all workers' ``positions``, and how many each worker chose, [S, n].

    ``positions`` [S][W] are the choices of the local workers, [k] int64 each.
    """
    largest = max(given.size for given in inputs)
    own = np.array([[len(found) for found in of_workers] for of_workers in positions])
    counts = communicator.all_gather_counts(own, largest)
    joined = [torch.cat(of_workers).to(index_dtype(largest)) for of_workers in positions]
    (arrived,) = communicator.all_gather_ragged([joined], counts, ["indices"])
    found = torch.cat(list(arrived)).cpu().split(counts.sum(1).tolist())  # one wait for a GPU
    return [Chosen(where=np.sort(of_segment.long().numpy())) for of_segment in found], counts
