"""Faults on a GPU, each in a function of one line; the pretended device must detect all of them."""

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


def mix(x: Tensor) -> object:
    return x + torch.ones(2, 3)


def join(x: Tensor) -> object:
    return torch.cat([x, torch.ones(1, 3)])


def select(x: Tensor) -> object:
    return x.index_select(0, torch.tensor([1]))


def to_numpy(x: Tensor) -> object:
    return x.numpy()


def draw(x: Tensor) -> object:
    return torch.rand(3, device=x.device, generator=torch.Generator())


def copy_unseen(x: Tensor) -> object:
    return x.to("cpu", non_blocking=True)


def read(x: Tensor) -> object:
    return x.sum().item()


def decide(x: Tensor) -> object:
    return bool((x > 1).any())


def list_all(x: Tensor) -> object:
    return x.tolist()


def fetch(x: Tensor) -> object:
    return x.cpu()


def bring(x: Tensor) -> object:
    return torch.ones(3).to(x.device)


def find(x: Tensor) -> object:
    return (x > 1).nonzero()


def pick(x: Tensor) -> object:
    return x[x > 1]


def write_marked(x: Tensor) -> object:
    return x.index_put_((x > 1,), x[0, 0] + torch.zeros(4, device=x.device))


REFUSED = (mix, join, select, to_numpy, draw, copy_unseen)
WAITED_FOR = (read, decide, list_all, fetch, bring, find, pick, write_marked)


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
    for function in (*REFUSED, *WAITED_FOR, allowed):
        with pretended_device() as waits:
            x = torch.arange(6.0).view(2, 3).to("cuda")
            waits.clear()
            try:
                function(x)
                found[function.__name__] = [f"{wait.what}, at {wait.line}" for wait in waits]
            except DeviceFault as error:
                found[function.__name__] = [f"fault: {error}"]
    return found


def line_of(function: Callable[..., Any]) -> str:
    """The line of a one-line function's body."""
    return f"tests/helpers/planted_faults.py:{function.__code__.co_firstlineno + 1}"


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


def _hand_over_cpu(x: Tensor) -> None:
    dist.all_reduce(torch.ones(2))


def _hand_over_columns(x: Tensor) -> None:
    dist.all_reduce(x.t())


def _hand_over_short_numbers(x: Tensor) -> None:
    dist.broadcast(x.short(), 0)


def _gather_unlike(x: Tensor) -> None:
    dist.all_gather([x.new_empty(2, 3), x.new_empty(3)], x)


def _send_nothing(x: Tensor) -> None:
    dist.batch_isend_irecv([dist.P2POp(dist.isend, x[:0], 1 - dist.get_rank())])


HANDED_OVER = (_hand_over_cpu, _hand_over_columns, _hand_over_short_numbers, _gather_unlike, _send_nothing)


def hand_over_all(process: int, processes: int, folder: str) -> dict[str, str]:
    """The error message of each function that violates NCCL's rules."""
    found = {}
    with pretended_device(), pretended_nccl(f"{folder}/meeting", process, processes):
        x = torch.arange(6.0).view(2, 3).to("cuda")
        try:
            _send_nothing(x)
        except DeviceFault as error:
            found["too early"] = str(error)
        dist.barrier()
        for function in HANDED_OVER:
            try:
                function(x)
            except DeviceFault as error:
                found[function.__name__] = str(error)
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
