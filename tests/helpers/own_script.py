"""A user's training script, with and without DistributedDataParallel."""

import math
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from compressors.api import Reducer, Traits
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from trainers.comm.communicator import Communicator
from trainers.comm.nodes import nodes_of
from trainers.hooks.compress import compress
from trainers.hooks.ddp import CompressionState, compression_hook
from trainers.hooks.script_log import LOG
from trainers.step.explicit import ExplicitStep
from trainers.step.gradients import WorkerGradients
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

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

    state = CompressionState(reducer_for(model), model)
    ddp_model.register_comm_hook(state, counting_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(ddp_model, batch(step, process)).backward()
        optimizer.step()
    return {"weights": weights(model), "buckets": buckets, "num_buckets": state.costs.num_buckets}


def by_hand(
    workers: int,
    steps: int = STEPS,
    reducer: Reducer | None = None,
    clip_norm: float | None = None,
    batches: int = 1,
    num_nodes: int | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Weights and the ledger's metrics of the same training in one process, compressed after backward passes.

    The loss of a step is that of ``batches`` batches. With ``num_nodes`` it is compressed between nodes.
    """
    model = network()
    layout, communicator = Layout(dict(model.named_parameters()), "layer"), Communicator(workers)
    reducer = reducer or reducer_for(model)

    def loss(model: nn.Module, inputs: list[Tensor], _: object) -> tuple[Tensor, None]:
        return sum((loss_of(model, each) for each in inputs), torch.zeros(())), None

    gradients = WorkerGradients(model, loss, layout, communicator, seed=0, clip_norm=clip_norm)
    nodes = None if num_nodes is None else nodes_of(communicator, num_nodes)
    senders = communicator if nodes is None else nodes.across
    ledger = Ledger(layout, senders, reducer, nodes)
    step_taker = ExplicitStep(gradients, reducer, layout, senders, ledger, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        numbers = range(batches * step, batches * (step + 1))
        given = [[batch(number, worker) for number in numbers] for worker in range(workers)]
        step_taker.run(given, step, 1e-3)
        ledger.close_step()
        optimizer.step()
    return weights(model), ledger.metrics()


def failing_hook(process: int, processes: int) -> str:
    """Type and text of the error of the backward pass when the hook's thread fails."""
    model = network()
    ddp_model = DistributedDataParallel(model)
    state = CompressionState(build_reducer(HardThreshold(threshold=1.0), 10), model)
    state.reducer = None
    ddp_model.register_comm_hook(state, compression_hook)
    try:
        loss_of(ddp_model, batch(0, process)).backward()
    except Exception as error:
        return repr(error)
    return ""


def gradient_that_is_not_finite(
    process: int, processes: int, scaler: torch.amp.GradScaler | None
) -> tuple[str, torch.Tensor]:
    """The error of a backward pass with such a gradient on worker 1, and a gradient of the next pass."""
    model = network()
    ddp_model = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MEGABYTES)
    compress(ddp_model, "top_k", density=0.1, clip_norm=1.0, scaler=scaler)
    raised = ""
    try:
        (loss_of(ddp_model, batch(0, process)) * (math.nan if process == 1 else 1.0)).backward()
    except FloatingPointError as error:
        raised = repr(error)
    ddp_model.zero_grad()
    loss_of(ddp_model, batch(1, process)).backward()
    return raised, torch.cat([p.grad.flatten() for p in model.parameters()])


class SkipsLayers(nn.Module):
    """A network that leaves out one of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, inputs: Tensor, without: int) -> Tensor:
        for place, layer in enumerate(self.layers):
            inputs = inputs if place == without else layer(inputs)
        return inputs


def unused_parameters(process: int, processes: int) -> Tensor:
    """Weights of a training in which every step and process leaves out another layer.

    Whether messages of DDP and of the hook would mix depends on timing, so their groups are compared.
    """
    model = SkipsLayers()
    ddp_model = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MEGABYTES, find_unused_parameters=True)
    state = compress(ddp_model, "hard_threshold", density=0.1)
    assert state.communicator.group not in (None, ddp_model.process_group)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(12):  # every layer is left out twice
        optimizer.zero_grad()
        ddp_model(batch(step, process), (step + process) % 6).square().sum().backward()
        optimizer.step()
    return weights(model)


class TwoHeads(nn.Module):
    """A network that uses one of its two heads in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(WIDTH, 1, bias=False) for _ in range(2))

    def forward(self, inputs: Tensor, head: int) -> Tensor:
        return self.heads[head](inputs).sum()


def head_without_use(process: int, processes: int, keeps_zeros: bool, views: bool) -> tuple[Tensor, Tensor]:
    """Sum of the gradients that one head was given, and sum of what the script received and the residual."""
    ddp_model = DistributedDataParallel(
        TwoHeads(), find_unused_parameters=True, gradient_as_bucket_view=views
    )
    state = compress(ddp_model, "top_k", density=0.1)
    given, received = torch.zeros(WIDTH), torch.zeros(WIDTH)
    for step in range(6):
        ddp_model.zero_grad(set_to_none=not keeps_zeros)
        inputs = batch(step, 0)  # equal for all workers, so means and residuals are too
        ddp_model(inputs, step % 2).backward()
        given += inputs.sum(0) if step % 2 == 0 else 0
        weight = ddp_model.module.heads[0].weight
        received += 0 if weight.grad is None else weight.grad[0]
    return given, received + state.state.residual["heads.0.weight"].flatten()


def head_never_used(process: int, processes: int) -> bool:
    """Whether a parameter that has no gradient at any time stays without one."""
    ddp_model = DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
    compress(ddp_model, "top_k", density=0.1)
    ddp_model(batch(0, process), 0).backward()
    return ddp_model.module.heads[1].weight.grad is None


def uneven_inputs(process: int, processes: int, compressed: bool) -> Tensor:
    """Weights of a training under torch's Join, in which the second process has more batches."""
    ddp_model = DistributedDataParallel(network(), bucket_cap_mb=BUCKET_MEGABYTES)
    if compressed:
        compress(ddp_model, "none")
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=1e-4)
    with Join([ddp_model]):
        for step in range(3 + 2 * process):
            optimizer.zero_grad()
            loss_of(ddp_model, batch(step, process)).backward()
            optimizer.step()
    return weights(ddp_model)


def sparse_gradient(process: int, processes: int) -> str:
    """What the backward pass says about a sparse gradient."""
    ddp_model = DistributedDataParallel(nn.EmbeddingBag(20, 8, sparse=True))
    compress(ddp_model, "top_k", density=0.1)
    try:
        ddp_model(torch.tensor([[1, 2, 3]])).sum().backward()
    except ValueError as error:
        return str(error)
    return ""


class NotSaidRagged(HardThreshold):
    """A threshold that does not say that workers send different numbers of entries."""

    traits = Traits()


def ragged_without_a_word(process: int, processes: int) -> str:
    """What the first backward pass says about it."""
    ddp_model = DistributedDataParallel(network())
    compress(ddp_model, NotSaidRagged(threshold=0.3))
    try:
        loss_of(ddp_model, batch(0, process)).backward()
    except ValueError as error:
        return str(error)
    return ""


def said_at_the_start(process: int, processes: int) -> tuple[str, list[str]]:
    """The refusal of other seeds in other processes, and the warnings of a method with momentum."""
    try:
        compress(DistributedDataParallel(network()), "random_k", density=0.1, seed=process)
        refused = ""
    except ValueError as error:
        refused = str(error)
    lines: list[str] = []
    with patch.object(LOG, "warning", lines.append):
        compress(DistributedDataParallel(network()), "dgc", density=0.1)
    return refused, lines
