"""Some steps of several kinds of feedback, by four workers in any number of processes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from compressors.api import Reducer, Step, inputs_of
from compressors.build import build_reducer
from compressors.feedback import DIANA, EF21, EF21SGDM, ErrorFeedback, MomentumCorrection, StoredResidual
from compressors.qsgd import QSGD
from compressors.top_k import TopK
from contract.cases import segment
from trainers.checkpoint.tree import walk
from trainers.comm.communicator import Communicator

WORKERS, SIZE, STEPS = 4, 60, 4
FEEDBACKS: dict[str, Callable[[], Reducer]] = {
    "ef21": lambda: build_reducer(TopK(density=0.1), SIZE, EF21),
    "ef21_sgdm": lambda: build_reducer(TopK(density=0.1), SIZE, EF21SGDM),
    "diana": lambda: build_reducer(QSGD(), SIZE, DIANA),
    "momentum_correction": lambda: build_reducer(
        TopK(density=0.1), SIZE, partial(MomentumCorrection, scale="step")
    ),
    "stored": lambda: StoredResidual(build_reducer(TopK(density=0.1), SIZE, ErrorFeedback), memory="bf16"),
}


def gradients(step: int) -> Tensor:
    return torch.randn(WORKERS, SIZE, generator=torch.Generator().manual_seed(step))


def results(process: int, processes: int) -> dict[str, Any]:
    """By feedback: means, bytes of the local workers, and the state after the last step."""
    found: dict[str, Any] = {}
    for name, make in FEEDBACKS.items():
        reducer = make()
        communicator = Communicator(WORKERS, rank=process, world_size=processes, reduction="worker_order")
        communicator.declare_kinds(reducer.kinds)
        local = communicator.local_workers
        state, means = reducer.init([segment(gradients(0)[list(local)])]), []
        for step in range(STEPS):
            inputs = inputs_of([segment(gradients(step)[list(local)])])
            reduced, state = reducer.reduce(inputs, state, Step(0, step, 0.5), communicator)
            means.append(reduced.mean["a"].clone())
        found[name] = {
            "alike": {"means": torch.stack(means), **dict(walk(state, "state", shared=True))},
            "rows": {"bytes": torch.from_numpy(communicator.take_charges()), **dict(walk(state, "state"))},
        }
    return found
