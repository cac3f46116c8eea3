"""All-reduce hook of FSDP2 that runs a reducer between replicas, for your own script.

    mesh = init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh["shard"])
    state = compress_replicas(model, reducer, mesh["replicate"])

FSDP2 (``torch.distributed.fsdp.fully_shard``) averages the gradients of a replica's processes into one shard
for each. The reducer takes the place of the all-reduce of these shards between replicas. The workers are the
replicas, and a segment is the part of a parameter that a process holds. A method that selects every entry
independently, as a hard threshold does, has the same result as without shards; Top-k selects k entries of
each part.
"""

import math
import weakref
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from compressors.api import Reducer
from trainers.comm.communicator import Communicator
from trainers.hooks.state import CompressionState

# Modules with a hook, which a second one would replace
_compressed: weakref.WeakSet[FSDPModule] = weakref.WeakSet()


class LocalShards(nn.Module):
    """The parts of a sharded model's parameters that this process holds, by the parameters' names."""

    def __init__(self, shards: dict[str, Tensor]) -> None:
        super().__init__()
        self.names = list(shards)
        self.parts = nn.ParameterList(nn.Parameter(shard.detach()) for shard in shards.values())

    def named_parameters(self, *_: object, **__: object) -> list[tuple[str, nn.Parameter]]:  # type: ignore[override]
        return list(zip(self.names, self.parts, strict=True))


class Group(dict[str, tuple[int, int]]):
    """Parameters of one ``fully_shard`` call: where their shards begin and end in its reduced buffer."""

    size = 0  # elements of the buffer, with padding
    dtype: torch.dtype


def compress_replicas(
    model: nn.Module,
    reducer: Reducer,
    replicas: DeviceMesh,
    *,
    seed: int = 0,
    learning_rate: float | None = None,
) -> CompressionState:
    """Average the gradients of ``model`` between ``replicas`` by ``reducer``; returns the hook's state.

    ``model`` and the modules below it are sharded by ``fully_shard`` over a mesh of one dimension.
    ``replicas`` is the mesh, of one dimension, of the processes that hold the same shard. Raises
    ``ValueError``, one line, for a model that is not sharded in this way, or is compressed already. In a
    backward pass ``ValueError`` is raised for parameters without a gradient, whose shards are missing from
    FSDP2's buffer, and for a ``reduce_dtype`` that is not the parameters' dtype. Not supported: native HSDP
    (a mesh of two dimensions, which has its own all-reduce), ``shard_placement_fn``, and ``scope=global``.
    """
    if replicas.ndim != 1:
        raise ValueError(f"replicas must be a mesh of one dimension, got {replicas.ndim}")
    groups, shards = _groups_of(model)
    if any(module in _compressed for module, _ in groups):
        raise ValueError(
            "compress_replicas needs a model that it has not compressed before: a module takes one "
            "all-reduce hook, once"
        )
    workers = replicas.size()
    communicator = Communicator(
        workers,
        rank=replicas.get_local_rank(),
        world_size=workers,
        device=next(iter(shards.values())).device,
        group=replicas.get_group(),
    )
    state = CompressionState(
        reducer, LocalShards(shards), seed=seed, learning_rate=learning_rate, communicator=communicator
    )
    arrived: set[int] = set()
    for number, (module, group) in enumerate(groups):
        module.set_all_reduce_hook(partial(_reduce, state, group, number, len(groups), arrived))
        _compressed.add(module)
    return state


def _groups_of(model: nn.Module) -> tuple[list[tuple[FSDPModule, Group]], dict[str, Tensor]]:
    """Sharded modules with the places of their parameters in their buffers, and all shards with elements."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups: list[tuple[FSDPModule, Group]] = []
    shards: dict[str, Tensor] = {}
    taken: set[nn.Parameter] = set()
    for module in reversed(list(model.modules())):  # from the inside out, as FSDP2 groups parameters
        if not isinstance(module, FSDPModule):
            continue
        group = Group()
        for parameter in module.parameters():
            if parameter in taken:
                continue
            taken.add(parameter)
            sharded = _sharded(names[parameter], parameter)
            if not parameter.requires_grad:
                continue
            shard = sharded.to_local()
            rows = -(-sharded.shape[0] // sharded.device_mesh.size())  # of the largest shard
            if shard.numel():
                group[names[parameter]] = group.size, group.size + shard.numel()
                shards[names[parameter]] = shard
            group.size += rows * math.prod(parameter.shape[1:])
            group.dtype = parameter.dtype
        if group.size:
            groups.append((module, group))
    if not groups:
        raise ValueError(f"{type(model).__name__} has no module with fully_shard and trainable parameters")
    left = [name for parameter, name in names.items() if parameter not in taken]
    if left:
        raise ValueError(f"every parameter must be below a module with fully_shard, got {left[0]}")
    if not shards:
        raise ValueError("every process must hold a shard with elements")
    return groups, shards


def _sharded(name: str, parameter: nn.Parameter) -> DTensor:
    if not isinstance(parameter, DTensor):
        raise ValueError(f"every parameter must be sharded by fully_shard, got {name}")
    if parameter.device_mesh.ndim != 1:
        raise ValueError(
            "fully_shard must have a mesh of one dimension, such as mesh['shard']: with two it averages all "
            f"gradients itself, got {parameter.device_mesh.ndim} for {name}"
        )
    if not parameter.placements[0].is_shard(0):
        raise ValueError(f"shards must be along dimension 0, got {parameter.placements[0]} for {name}")
    return parameter


def _reduce(
    state: CompressionState, group: Group, number: int, count: int, arrived: set[int], buffer: Tensor
) -> None:
    """Replace a module's shard of gradients by its mean over replicas; the last module ends the step."""
    if buffer.numel() != group.size:
        raise ValueError(
            "every trainable parameter must have a gradient under FSDP2, "
            f"got {buffer.numel()} of {group.size} elements"
        )
    if buffer.dtype != group.dtype:
        raise ValueError(f"reduce_dtype must be the parameters' {group.dtype}, got {buffer.dtype}")
    if number in arrived:  # again, so a module was not used in the last step
        arrived.clear()
        state.close_step()
    arrived.add(number)
    is_last = len(arrived) == count
    if is_last:
        arrived.clear()
    gradients = {name: buffer[begin:end] for name, (begin, end) in group.items()}
    if gradients:
        state.reduce(gradients, last=is_last)
    elif is_last:  # its parameters are small: other processes hold their rows
        state.close_step()
