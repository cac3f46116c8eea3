"""Training of a small network under FSDP2, with 2 replicas of 2 shards, and without shards."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from compressors.api import Reducer, Step, inputs_of
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.none import NoCompression
from compressors.powersgd import PowerSGD
from compressors.random_k import RandomK
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.hooks.fsdp import compress_replicas
from trainers.step.layout import Layout

REPLICAS, SHARDS, STEPS, BATCH = 2, 2, 6, 8


class Network(nn.Module):
    """Layers of odd sizes, whose shards are padded, and a bias of one element, which only one shard has.

    ``scale`` is first in ``parameters()``, and last in the buffer of FSDP2.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 3))
        self.first = nn.Linear(5, 7)
        self.second = nn.Sequential(nn.Linear(7, 9, bias=False), nn.ReLU(), nn.Linear(9, 3))
        self.unused = nn.Linear(3, 2)
        self.last = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.scale * torch.relu(self.second(torch.relu(self.first(x)))))


def network(*, unused: bool = False) -> Network:
    torch.manual_seed(0)
    made = Network()
    if not unused:
        del made.unused
    return made


def reducer_of(name: str, size: int) -> Reducer:
    methods = {
        "none": NoCompression(),
        "hard_threshold": HardThreshold(threshold=0.02),
        "top_k": TopK(density=0.2),
        "random_k": RandomK(density=0.3),
        "powersgd": PowerSGD(rank=1),
    }
    return build_reducer(methods[name], size, ErrorFeedback)


def batch(step: int, process: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + process)
    x = torch.randn(BATCH, 5, generator=generator)
    return x, x.sum(1, keepdim=True).sin()


def loss_of(model: nn.Module, step: int, *processes: int) -> Tensor:
    x, y = (torch.cat(parts) for parts in zip(*[batch(step, process) for process in processes], strict=True))
    return (model(x) - y).square().mean()


def sharded(model: nn.Module, policy: MixedPrecisionPolicy | None = None) -> Any:
    """Shard ``model``, with the second and the last layer as an FSDP group; returns the mesh."""
    mesh = init_device_mesh("cpu", (REPLICAS, SHARDS), mesh_dim_names=("replicate", "shard"))
    options: dict[str, Any] = {"mesh": mesh["shard"]} | ({"mp_policy": policy} if policy else {})
    fully_shard([model.second, model.last], **options)
    fully_shard(model, **options)
    return mesh


def with_shards(process: int, method: str) -> dict[str, Any]:
    """Weights, bytes, step count, residual shapes and parameter order of a training under FSDP2."""
    model = network()
    size = sum(p.numel() for p in model.parameters())
    mesh = sharded(model)
    state = compress_replicas(model, reducer_of(method, size), mesh["replicate"], seed=3)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [module._get_fsdp_state()._fsdp_param_group for module in (model.second, model)]
    order = [names[id(param.sharded_param)] for group in groups for param in group.fsdp_params]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss_of(model, step, process).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])
    own = {name: list(rows.shape) for name, rows in getattr(state.state, "residual", {}).items()}
    handed = state.ledger.total_counts.bytes[0].tolist()
    return {"weights": weights, "bytes": handed, "step": state.step, "own": own, "order": order}


def all_with_shards(process: int, processes: int, *methods: str) -> dict[str, dict[str, Any]]:
    return {method: with_shards(process, method) for method in methods}


def without_shards(method: str) -> tuple[Tensor, list[float]]:
    """Weights, and mean bytes per worker by kind, of the same training with one worker per replica."""
    model = network()
    layout = Layout(dict(model.named_parameters()), "layer")
    reducer, communicator = reducer_of(method, layout.num_parameters), Communicator(REPLICAS)
    communicator.declare_kinds(reducer.kinds)
    gradients = layout.new_buffer(REPLICAS)
    state = reducer.init(layout.segments(gradients))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        for replica in range(REPLICAS):
            model.zero_grad()
            loss_of(model, step, *range(SHARDS * replica, SHARDS * (replica + 1))).backward()
            gradients[replica] = torch.cat([p.grad.flatten() for p in model.parameters()])
        with torch.no_grad():
            inputs = inputs_of(layout.segments(gradients))
            reduced, state = reducer.reduce(inputs, state, Step(3, step), communicator)
        layout.write_gradients(reduced.mean)
        optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return weights, communicator.take_charges().mean(0).tolist()


def refusals(process: int, processes: int) -> list[str]:
    """The error messages for models that cannot be compressed between replicas."""
    said = []
    reducer = build_reducer(TopK(density=0.2), 100, ErrorFeedback)
    mesh = init_device_mesh("cpu", (REPLICAS, SHARDS), mesh_dim_names=("replicate", "shard"))

    def refused(
        model: nn.Module, replicas: Any = mesh["replicate"], later: Callable[[], object] = lambda: None
    ) -> None:
        try:
            state = compress_replicas(model, reducer, replicas)
            later()
            loss_of(model, 0, process).backward()
            said.append(f"nothing after {state.step} steps")
        except ValueError as error:
            said.append(str(error))

    refused(network())
    twice = network()
    sharded(twice)
    compress_replicas(twice, reducer, mesh["replicate"])
    refused(twice)
    native = network()
    fully_shard(native, mesh=mesh)
    refused(native)
    part = network()
    fully_shard(part.second, mesh=mesh["shard"])
    refused(part)
    whole = network()
    sharded(whole)
    refused(whole, mesh)
    idle = network(unused=True)
    sharded(idle)
    refused(idle)
    halved = network()
    sharded(halved, MixedPrecisionPolicy(reduce_dtype=torch.bfloat16))
    refused(halved)
    frozen = network()
    frozen.first.requires_grad_(False)
    fully_shard(frozen.first, mesh=mesh["shard"])
    sharded(frozen)
    refused(frozen, later=lambda: frozen.first.requires_grad_(True))
    return said
