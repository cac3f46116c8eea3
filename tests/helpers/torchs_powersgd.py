"""torch's PowerSGD hook and this project's PowerSGD on the same gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from compressors.api import Segment, Step, inputs_of
from compressors.feedback import ErrorFeedback
from compressors.powersgd import PowerSGD
from trainers.comm.communicator import Communicator

SHAPES = {"convolution": (16, 8, 3, 3), "linear": (40, 30), "bias": (40,), "small": (3, 2), "scale": ()}
NUM_ELEMENTS = sum(torch.Size(shape).numel() for shape in SHAPES.values())
STEPS = 20


def gradients(step: int, worker: int) -> dict[str, Tensor]:
    """Gradients by name: a constant part of rank 6 plus noise."""
    found = {}
    for name, shape in SHAPES.items():
        steady = torch.randn(2, *shape, generator=torch.Generator().manual_seed(7))[0]
        if len(shape) > 1:
            left, values, right = torch.linalg.svd(steady.flatten(1), full_matrices=False)
            steady = (left[:, :6] * values[:6] * 2.0 ** -torch.arange(len(values[:6])) @ right[:6]).view(
                shape
            )
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(1000 * step + worker))
        found[name] = 3 * steady + 0.3 * noise
    return found


class Bucket:
    """The part of DistributedDataParallel's bucket that the hook uses, with all gradients concatenated."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.flat = torch.cat([tensor.flatten() for tensor in tensors.values()])

    def buffer(self) -> Tensor:
        return self.flat

    def gradients(self) -> list[Tensor]:
        parts = self.flat.split([torch.Size(shape).numel() for shape in SHAPES.values()])
        return [part.view(shape or (1,)) for part, shape in zip(parts, SHAPES.values(), strict=True)]

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


def means_of_both(process: int, processes: int) -> dict[str, Any]:
    """By rank and dtype: the means of all steps, [steps, D], of this project and of torch's hook."""
    return {
        f"{rank} {dtype}": _means(process, processes, rank, dtype)
        for rank in (1, 2, 4)
        for dtype in (torch.float32, torch.float64)
    }


def _means(process: int, processes: int, rank: int, dtype: torch.dtype) -> list[Tensor]:
    """The means of both, with error feedback and warm start from the same Q."""
    communicator = Communicator(processes, rank=process, world_size=processes, reduction="all_reduce")
    reducer = ErrorFeedback(PowerSGD(rank=rank))
    state = reducer.init(_segments({name: torch.zeros(shape, dtype=dtype) for name, shape in SHAPES.items()}))
    hook = PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2, min_compression_rate=1)
    hook.iter = 2  # the hook does not compress earlier iterations
    factors = state.inner.state  # by segment and layer
    rows = [SHAPES[name.split("/")[0]][0] for name in factors]
    hook.q_memory_dict[0] = torch.cat([factor.T.flatten() for factor in factors.values()])
    size_of_all_p = sum(m * len(factor) for m, factor in zip(rows, factors.values(), strict=True))
    hook.p_memory_dict[0] = torch.empty(size_of_all_p, dtype=dtype)
    ours, torchs = [], []
    for step in range(STEPS):
        own = {name: tensor.to(dtype) for name, tensor in gradients(step, process).items()}
        torchs.append(powerSGD_hook(hook, Bucket(own)).wait().clone())
        reduced, state = reducer.reduce(inputs_of(_segments(own)), state, Step(0, step), communicator)
        ours.append(torch.cat([reduced.mean[name] for name in SHAPES]))
    return [torch.stack(ours), torch.stack(torchs)]


def _segments(tensors: dict[str, Tensor]) -> list[Segment]:
    return [Segment(name, x.reshape(1, -1).clone(), (SHAPES[name],)) for name, x in tensors.items()]
