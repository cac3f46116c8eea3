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

import weakref
from functools import partial

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from compressors.api import Reducer
from trainers.comm.communicator import Communicator
from trainers.hooks.backward_passes import BackwardPasses
from trainers.hooks.shards import Group, Named, groups_of, require_all
from trainers.hooks.state import CompressionState

# Modules with a hook, which a second one would replace
_compressed: weakref.WeakSet[FSDPModule] = weakref.WeakSet()


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
    backward pass ``ValueError`` is raised for a parameter without a gradient, whose shard is missing from the
    buffer of its ``fully_shard`` call, for one that was frozen at this call, and for a ``reduce_dtype`` that
    is not the parameters' dtype. Not supported: native HSDP (a mesh of two dimensions, which has its own
    all-reduce), ``shard_placement_fn``, and ``scope=global``.
    """
    if replicas.ndim != 1:
        raise ValueError(f"replicas must be a mesh of one dimension, got {replicas.ndim}")
    groups = groups_of(model, (1,))
    if any(group.module in _compressed for group in groups):
        raise ValueError(
            "compress_replicas needs a model that it has not compressed before: a module takes one "
            "all-reduce hook, once"
        )
    shards = {
        place.name: place.parameter.to_local()
        for group in groups
        for place in group.places
        if place.own.start < place.own.stop
    }
    if not shards:
        raise ValueError("every process must hold a shard with elements")
    workers = replicas.size()
    communicator = Communicator(
        workers,
        rank=replicas.get_local_rank(),
        world_size=workers,
        device=next(iter(shards.values())).device,
        group=replicas.get_group(),
    )
    state = CompressionState(
        reducer, Named(shards), seed=seed, learning_rate=learning_rate, communicator=communicator
    )
    passes = BackwardPasses(state, ())
    passes.watch(model)
    for group in groups:
        group.module.set_all_reduce_hook(partial(_reduce, passes, group))
        _compressed.add(group.module)
    return state


def _reduce(passes: BackwardPasses, group: Group, buffer: Tensor) -> None:
    """Replace a group's shard of gradients by its mean over replicas."""
    require_all(buffer, group)
    if buffer.dtype != group.dtype:
        raise ValueError(f"reduce_dtype must be the parameters' {group.dtype}, got {buffer.dtype}")
    parts = {place.name: buffer[place.in_buffer(place.own)] for place in group.places}
    passes.reduce(group, {name: part for name, part in parts.items() if part.numel()})
