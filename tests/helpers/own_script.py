"""A user's training script, with and without DistributedDataParallel."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel

from compressors.api import Reducer
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from trainers.comm.communicator import Communicator
from trainers.comm.ddp_hook import CompressionState, compression_hook
from trainers.gradients import WorkerGradients
from trainers.layout import Layout
from trainers.ledger import Ledger
from trainers.step import ExplicitStep

STEPS = 5
WIDTH = 32
BUCKET_MEGABYTES = 0.005  # several buckets; DistributedDataParallel regroups them after the first step


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(6)])


def reducer_for(model: nn.Module) -> Reducer:
    size = sum(p.numel() for p in model.parameters())
    return build_reducer(HardThreshold(density=0.01), size, ErrorFeedback)


def batch(step: int, worker: int) -> Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(10 * step + worker))


def loss_of(model: nn.Module, inputs: Tensor) -> Tensor:
    return model(inputs).square().sum()


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def with_hook(process: int, processes: int) -> dict[str, Any]:
    """Weights and bucket numbers of a script with DistributedDataParallel and buckets of 5 kB."""
    model = network()
    ddp_model = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MEGABYTES)
    buckets: list[int] = []

    def counting_hook(state: CompressionState, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        buckets.append(bucket.index())
        return compression_hook(state, bucket)

    ddp_model.register_comm_hook(CompressionState(reducer_for(model), model), counting_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(ddp_model, batch(step, process)).backward()
        optimizer.step()
    return {"weights": weights(model), "buckets": buckets}


def by_hand(workers: int, steps: int = STEPS) -> Tensor:
    """Weights of the same training in one process, with compression after the backward pass."""
    model = network()
    layout = Layout(dict(model.named_parameters()), "layer")
    communicator = Communicator(workers)
    reducer = reducer_for(model)
    gradients = WorkerGradients(
        model, lambda model, batch, _: (loss_of(model, batch), None), layout, communicator, seed=0
    )
    ledger = Ledger(layout, communicator, reducer)
    step_taker = ExplicitStep(gradients, reducer, layout, communicator, ledger, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        step_taker.run([batch(step, worker) for worker in range(workers)], step, 1e-3)
        optimizer.step()
    return weights(model)


def failing_hook(process: int, processes: int) -> str:
    """The error message of the backward pass when the hook's thread fails."""
    model = network()
    ddp_model = DistributedDataParallel(model)
    state = CompressionState(build_reducer(HardThreshold(threshold=1.0), 10), model)
    state.reducer = None
    ddp_model.register_comm_hook(state, compression_hook)
    try:
        loss_of(ddp_model, batch(0, process)).backward()
    except Exception as error:
        return str(error)
    return ""
