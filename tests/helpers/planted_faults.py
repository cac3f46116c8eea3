"""Faults on a GPU, each in one line; the pretended device must detect all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from pretended_device import DeviceFault, pretended_device
from pretended_nccl import Plain, as_plain, pretended_nccl
from torch import Tensor

from compressors.api import Step
from compressors.core.payloads import Sparse
from compressors.top_k import TopK

REFUSED: dict[str, Callable[[Tensor], object]] = {
    "mix": lambda x: x + torch.ones(2, 3),
    "join": lambda x: torch.cat([x, torch.ones(1, 3)]),
    "select": lambda x: x.index_select(0, torch.tensor([1])),
    "to numpy": lambda x: x.numpy(),
    "draw": lambda x: torch.rand(3, device=x.device, generator=torch.Generator()),
    "copy unseen": lambda x: x.to("cpu", non_blocking=True),
}
WAITED_FOR: dict[str, Callable[[Tensor], object]] = {
    "read": lambda x: x.sum().item(),
    "decide": lambda x: bool((x > 1).any()),
    "list all": lambda x: x.tolist(),
    "fetch": lambda x: x.cpu(),
    "bring": lambda x: torch.ones(3).to(x.device),
    "find": lambda x: (x > 1).nonzero(),
    "pick": lambda x: x[x > 1],
    "write marked": lambda x: x.index_put_((x > 1,), x[0, 0] + torch.zeros(4, device=x.device)),
}


def allowed(x: Tensor) -> None:
    """Operations that a GPU allows, and for which the host does not wait."""
    x.add_(torch.tensor(1.0)).mul_(2)
    torch.ones(3).to(x.device, non_blocking=True)
    x[x > 5] = 0.0
    torch.nonzero_static(x > 1, size=3)
    x.to(x.device)
    x[1:, None].copy_(x[0])
    torch.where(x > 1, x, 0.0).sum(1).clamp(max=2.0)


def try_all(process: int, processes: int) -> dict[str, list[str]]:
    """The fault or the waits of each function, with their lines."""
    found = {}
    for name, function in {**REFUSED, **WAITED_FOR, "allowed": allowed}.items():
        with pretended_device() as waits:
            x = torch.arange(6.0).view(2, 3).to("cuda")
            waits.clear()
            try:
                function(x)
                found[name] = [f"{wait.what}, at {wait.line}" for wait in waits]
            except DeviceFault as error:
                found[name] = [f"fault: {error}"]
    return found


def line_of(function: Callable[..., Any]) -> str:
    return f"tests/helpers/planted_faults.py:{function.__code__.co_firstlineno}"


@dataclass(frozen=True, kw_only=True)
class AskingTopK(TopK):
    """Top-k that reads a number from the device for every worker and segment."""

    def encode(self, x: Tensor, step: Step) -> Sparse:
        assert x.sum().item() is not None
        return super().encode(x, step)


@dataclass(frozen=True, kw_only=True)
class StrayTopK(TopK):
    """Top-k that adds a CPU tensor."""

    def encode(self, x: Tensor, step: Step) -> Sparse:
        return super().encode(x.add_(torch.zeros(len(x))), step)


HANDED_OVER: dict[str, Callable[[Tensor], object]] = {  # by a part of the message
    "of the CPU": lambda x: dist.all_reduce(torch.ones(2)),
    "do not lie side by side": lambda x: dist.all_reduce(x.t()),
    "does not know torch.int16": lambda x: dist.broadcast(x.short(), 0),
    "shapes": lambda x: dist.all_gather([x.new_empty(2, 3), x.new_empty(3)], x),
    "empty": lambda x: dist.batch_isend_irecv([dist.P2POp(dist.isend, x[:0], 1 - dist.get_rank())]),
}


def hand_over_all(process: int, processes: int, folder: str) -> dict[str, str]:
    """The error message of each function that violates NCCL's rules."""
    found = {}
    with pretended_device(), pretended_nccl(f"{folder}/meeting", process, processes):
        x = torch.arange(6.0).view(2, 3).to("cuda")
        try:
            HANDED_OVER["empty"](x)
        except DeviceFault as error:
            found["too early"] = str(error)
        dist.barrier()
        for rule, function in HANDED_OVER.items():
            try:
                function(x)
            except DeviceFault as error:
                found[rule] = str(error)
    return found


def cross(process: int, processes: int, folder: str) -> Plain:
    """A message that one process sends before a collective and the other one receives after it.

    gloo accepts this, because it buffers messages; NCCL would wait for ever.
    """
    with pretended_device(), pretended_nccl(f"{folder}/meeting", process, processes) as calls:
        x = torch.ones(2, device="cuda")
        dist.barrier()
        kind, works = (dist.isend, dist.irecv)[process], []
        if process == 0:
            works = dist.batch_isend_irecv([dist.P2POp(kind, x, 1)])
        dist.all_reduce(x.clone())
        if process == 1:
            works = dist.batch_isend_irecv([dist.P2POp(kind, x, 0)])
        for work in works:
            work.wait()
    return as_plain(calls)
