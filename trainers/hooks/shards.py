"""Parameters of an FSDP2 model: those of each ``fully_shard`` call, and their places in its buffer."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


class Named(nn.Module):
    """A module whose parameters are ``tensors``, by name."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = list(tensors)
        self.parts = nn.ParameterList(nn.Parameter(tensor.detach()) for tensor in tensors.values())

    def named_parameters(self, *_: object, **__: object) -> list[tuple[str, nn.Parameter]]:  # type: ignore[override]
        return list(zip(self.names, self.parts, strict=True))


class Place(NamedTuple):
    """A parameter of D elements, divided along dimension 0 among n processes, the owners of its parts."""

    name: str
    parameter: DTensor
    begin: int  # of a part in its owner's part of the buffer
    edges: tuple[int, ...]  # boundaries of the parts, n + 1 numbers from 0 to D; the last parts may be empty

    @property
    def own(self) -> slice:
        """This process's part."""
        mesh = self.parameter.device_mesh
        owner = mesh.get_local_rank(mesh.ndim - 1)
        return slice(self.edges[owner], self.edges[owner + 1])

    def in_buffer(self, part: slice) -> slice:
        """The place of ``part`` in its owner's part of the buffer."""
        return slice(self.begin, self.begin + part.stop - part.start)

    def whole(self, buffer: Tensor) -> Tensor:
        """A copy of the parameter's elements in ``buffer`` [n, size]; [D] in the parameter's dtype."""
        parts = [slice(*ends) for ends in pairwise(self.edges)]
        pieces = [row[self.in_buffer(part)] for row, part in zip(buffer, parts, strict=True)]
        return torch.cat(pieces).to(self.parameter.dtype)


class Group(NamedTuple):
    """The trainable parameters of one ``fully_shard`` call, in the order of its buffer."""

    module: FSDPModule
    places: list[Place]
    size: int  # elements of a process's part of the buffer, with padding; 0 if all parameters are frozen

    @property
    def dtype(self) -> torch.dtype:
        return self.places[0].parameter.dtype


def groups_of(model: nn.Module, num_dimensions: tuple[int, ...]) -> list[Group]:
    """The groups of ``model``, whose meshes have one of these numbers of dimensions.

    A group whose parameters are all frozen has no places. Raises ``ValueError``, one line, for a parameter
    that is not sharded by ``fully_shard`` along dimension 0 over the last dimension of such a mesh.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups: list[Group] = []
    taken: set[nn.Parameter] = set()
    seen: set[nn.Module] = set()
    for module in reversed(list(model.modules())):  # from the inside out, as FSDP2 groups parameters
        if not isinstance(module, FSDPModule) or module in seen:
            continue
        together = module._get_fsdp_state()._modules  # of one call; nothing public tells them
        seen.update(together)
        places, size = [], 0
        managed = [parameter for parameter in _in_order_of_buffer(together) if parameter not in taken]
        taken.update(managed)
        for parameter in managed:
            sharded = _sharded(names[parameter], parameter, num_dimensions)
            if not parameter.requires_grad:
                continue
            owners, row = sharded.device_mesh.size(-1), math.prod(parameter.shape[1:])
            rows = -(-sharded.shape[0] // owners)  # of the largest part
            edges = tuple(min(owner * rows, sharded.shape[0]) * row for owner in range(owners + 1))
            places.append(Place(names[parameter], sharded, size, edges))
            size += rows * row
        if managed:
            groups.append(Group(module, places, size))
    if not any(group.places for group in groups):
        raise ValueError(f"{type(model).__name__} has no module with fully_shard and trainable parameters")
    left = [name for parameter, name in names.items() if parameter not in taken]
    if left:
        raise ValueError(f"every parameter must be below a module with fully_shard, got {left[0]}")
    return groups


def _in_order_of_buffer(modules: Sequence[nn.Module]) -> list[nn.Parameter]:
    """The parameters of one ``fully_shard`` call: a module's own follow those of the modules below it.

    The order of ``_get_managed_modules`` in torch.
    """
    found: dict[nn.Module, None] = {}
    begun: set[nn.Module] = set()

    def visit(module: nn.Module) -> None:
        begun.add(module)
        for child in module.children():
            if child not in begun and not isinstance(child, FSDPModule):
                visit(child)
        found[module] = None

    for module in modules:
        visit(module)
    return list(dict.fromkeys(own for module in found for own in module.parameters(recurse=False)))


def require_all(buffer: Tensor, group: Group) -> None:
    """Raise ``ValueError`` unless ``buffer`` [..., size] has a gradient of every parameter of ``group``."""
    if buffer.shape[-1] > group.size:
        raise ValueError(
            "a parameter that was frozen when the model was compressed cannot be trained under FSDP2, "
            f"got {buffer.shape[-1]} elements instead of {group.size}"
        )
    if buffer.shape[-1] < group.size:
        raise ValueError(
            "every trainable parameter must have a gradient under FSDP2, "
            f"got {buffer.shape[-1]} of {group.size} elements"
        )


def _sharded(name: str, parameter: nn.Parameter, num_dimensions: tuple[int, ...]) -> DTensor:
    if not isinstance(parameter, DTensor):
        raise ValueError(f"every parameter must be sharded by fully_shard, got {name}")
    *others, last = parameter.placements
    if not last.is_shard(0):
        raise ValueError(f"shards must be along dimension 0, got {last} for {name}")
    if not all(placement.is_replicate() for placement in others):
        raise ValueError(f"other dimensions of the mesh must be of replicas, got {others[0]} for {name}")
    found = parameter.device_mesh.ndim
    if found in num_dimensions:
        return parameter
    raise ValueError(
        "fully_shard must have a mesh of one dimension, such as mesh['shard']: with two it averages all "
        f"gradients itself, got {found} for {name}"
        if num_dimensions == (1,)
        else f"fully_shard must have a mesh of one or two dimensions, got {found} for {name}"
    )
