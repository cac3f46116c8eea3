"""Compression of the reduce-scatter of an FSDP2 model, in one call.

    fully_shard(model, mesh=mesh)
    state = total_error.compress_fsdp(model, "hard_threshold", density=0.001)

FSDP2 (``torch.distributed.fsdp.fully_shard``) hands over this worker's gradient of the whole parameters of a
module, and gets this process's part of their mean. A segment is a whole parameter: each process has residuals
for all trainable parameters, in their dtype.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from compressors.api import Codec, Reduced, Reducer
from trainers.comm.communicator import Communicator
from trainers.comm.links import reduce_scatter_bytes
from trainers.hooks.backward_passes import BackwardPasses
from trainers.hooks.compress import Feedback, begin_together, chosen_reducer, say_momentum
from trainers.hooks.preparation import Scaler
from trainers.hooks.scattered import scattered
from trainers.hooks.shards import Group, Named, groups_of, require_all
from trainers.hooks.state import CompressionState

# Modules with a reduce-scatter of this kind, which a second one would replace
_compressed: weakref.WeakSet[FSDPModule] = weakref.WeakSet()


def compress_fsdp(
    model: nn.Module,
    compressor: str | Codec | Reducer,
    *,
    feedback: Feedback = None,
    seed: int = 0,
    learning_rate: float | None = None,
    scaler: Scaler | None = None,
    inspect: Callable[[Reduced], None] | None = None,
    **settings: Any,
) -> CompressionState:
    """Compress the reduce-scatter of ``model``; returns the state of compression.

    ``model`` and the modules below it are sharded by ``fully_shard`` over all processes of a mesh of one
    dimension, or of two (HSDP): then each replica has its own reduce-scatter, and FSDP2 averages its results
    without compression. The arguments are those of ``compress``, without ``memory``, ``within`` and
    ``clip_norm``: no process has the whole gradient before it is compressed. ``inspect`` receives means that
    have this process's part alone. In the ledger, bytes without compression are those of a ring
    reduce-scatter.

    Raises ``ValueError``, one line, for unsuitable arguments, a model that is sharded in another way or has
    been compressed before, and feedback that keeps means; and in a backward pass for a trainable parameter
    without a gradient whose group has others, a gradient of a parameter that was frozen at the call, CPU
    offloading, gradients that FSDP2 does not average (another ``reduce_dtype`` than float32 and bfloat16,
    ``set_gradient_divide_factor``), and a method that reads the weights.
    """
    groups = groups_of(model, (1, 2))
    if any(group.module in _compressed for group in groups):
        raise ValueError("compress_fsdp needs a model that it has not compressed before")
    places = [place for group in groups for place in group.places]
    mesh = places[0].parameter.device_mesh
    other = [place.name for place in places if place.parameter.device_mesh != mesh]
    if other:
        raise ValueError(f"all parameters must have one mesh, got another for {other[0]}")
    size = sum(place.edges[-1] for place in places)
    reducer, density = chosen_reducer(compressor, settings, feedback, size)
    owners, communicator = _workers_of(mesh, places[0].parameter.device)
    edges = {place.name: place.edges for place in places}
    shapes = {place.name: _without_memory(place.parameter) for place in places}
    state = CompressionState(
        scattered(reducer, edges, owners),
        Named(shapes),
        seed=seed,
        learning_rate=learning_rate,
        communicator=communicator,
        inspect=inspect,
        scaler=scaler,
        knows_weights=False,
    )
    state.density = density
    state.costs.nothing_to_compare = True  # a break-even bandwidth would compare with an all-reduce
    state.ledger.counts.dense_bytes[:] = reduce_scatter_bytes(state.layout.num_bytes, len(owners))
    begin_together(state, reducer)
    say_momentum(state, reducer)
    passes = BackwardPasses(state, [place.parameter for place in places])
    passes.watch(model)
    for group in groups:
        communication = ReduceScatter(group, passes)
        group.module.set_custom_reduce_scatter(communication)  # type: ignore[arg-type]  # a private class
        _compressed.add(group.module)
    return state


def _workers_of(mesh: DeviceMesh, device: torch.device) -> tuple[range, Communicator]:
    """The workers of this process's replica, and the communicator of all workers of all replicas."""
    if device.type == "meta":
        raise ValueError(
            "compress_fsdp needs parameters with memory, got the device meta: call to_empty first"
        )
    n = mesh.size(-1)
    if n == 1:
        raise ValueError("compress_fsdp needs at least two processes that share a replica, got one")
    if mesh.ndim == 1:
        rank, group = mesh.get_local_rank(), mesh.get_group()
        return range(n), Communicator(n, rank=rank, world_size=n, device=device, group=group)
    workers = dist.get_world_size()
    if mesh.mesh.flatten().tolist() != list(range(workers)):
        raise ValueError(f"a mesh of two dimensions must have all processes in order, got {mesh}")
    first = n * mesh.get_local_rank(0)
    communicator = Communicator(workers, rank=dist.get_rank(), world_size=workers, device=device)
    return range(first, first + n), communicator


def _without_memory(parameter: Tensor) -> Tensor:
    """A tensor of the whole parameter's shape, with one element in memory."""
    return torch.zeros((), dtype=parameter.dtype, device=parameter.device).expand(parameter.shape)


@dataclass(eq=False)
class ReduceScatter:
    """What ``FSDPModule.set_custom_reduce_scatter`` takes, for one group."""

    group: Group
    passes: BackwardPasses

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> None:
        """Write the mean of this process's part of ``input_tensor`` [n size] into ``output_tensor``
        [size]."""
        buffer = input_tensor.view(group.size(), -1)
        require_all(buffer, self.group)
        if op != dist.ReduceOp.AVG:
            raise ValueError(
                "FSDP2 must average gradients, with float32 or bfloat16 as reduce_dtype and without "
                "set_gradient_divide_factor and set_force_sum_reduction_for_comms, "
                f"got {input_tensor.dtype}"
            )
        device = self.passes.state.layout.device
        if buffer.device != device:
            raise ValueError(f"gradients must be on {device}, as their parameters, got {buffer.device}")
        gradients = {place.name: place.whole(buffer) for place in self.group.places}
        self.passes.reduce(self.group, gradients)
        output_tensor.zero_()  # the padding
        for place in self.group.places:
            output_tensor[place.in_buffer(place.own)] = gradients[place.name][place.own]
