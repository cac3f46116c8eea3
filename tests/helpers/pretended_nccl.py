"""NCCL's rules over gloo: a process group for tensors of the pretended device.

The group refuses everything that NCCL refuses or that makes NCCL wait for ever: CPU tensors, non-contiguous
tensors, unknown types, empty messages. It records the calls of every process in order. ``require_met``
simulates these calls: a call ends when all processes that it needs have reached their matching calls.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
from pretended_operators import NAME, fault, host_view, is_pretended
from torch import Tensor

BACKEND = "pretended_nccl"
_TYPES = {
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
}


class Call(NamedTuple):
    """One message or collective, as called by a process."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    peer: int = -1  # the other process of a message, or the source of a broadcast


Group = list[Call]  # calls that start together: all messages of a batch, or one collective
Plain = list[list[list[Any]]]  # the same in lists, for transfer between processes
_calls: list[Group] = []


def _checked(name: str, tensor: Tensor, *, message: bool = False) -> Tensor:
    """The memory of a tensor that NCCL accepts."""
    shape = list(tensor.shape)
    if not is_pretended(tensor):
        raise fault(f"{name}: a tensor {shape} of the CPU is handed to NCCL")
    if not tensor.is_contiguous():
        raise fault(f"{name}: the entries of a tensor {shape} do not lie side by side")
    if tensor.dtype not in _TYPES:
        raise fault(f"{name}: NCCL does not know {tensor.dtype}")
    if message and not tensor.numel():
        raise fault(f"{name}: an empty message")
    return host_view(tensor)


def _call(name: str, tensor: Tensor, peer: int = -1) -> Call:
    return Call(name, str(tensor.dtype), tuple(tensor.shape), peer)


class _Works:
    """NCCL's result of a batch of messages: one object to wait for."""

    def __init__(self, works: Sequence[dist.Work]) -> None:
        self.works = works

    def wait(self) -> None:
        for work in self.works:
            work.wait()


class PretendedNCCL(dist.ProcessGroup):
    """Collectives of the device's tensors, which gloo executes on their memory."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self.gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        (tensor,) = tensors
        _calls.append([_call("all_reduce", tensor)])
        return self.gloo.allreduce([_checked("all_reduce", tensor)], opts or dist.AllreduceOptions())

    def broadcast(self, tensors: list[Tensor], opts: Any) -> dist.Work:
        (tensor,) = tensors
        _calls.append([_call("broadcast", tensor, opts.rootRank)])
        return self.gloo.broadcast([_checked("broadcast", tensor)], opts)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> dist.Work:
        (tensor,), (places,) = inputs, outputs
        if any(place.shape != tensor.shape for place in places):
            raise fault("all_gather: tensors of different shapes")
        _calls.append([_call("all_gather", tensor)])
        found = [[_checked("all_gather", place) for place in places]]
        return self.gloo.allgather(found, [_checked("all_gather", tensor)], opts or dist.AllgatherOptions())

    def barrier(self, opts: Any = None) -> dist.Work:
        _calls.append([Call("barrier", "", ())])
        return self.gloo.barrier(opts or dist.BarrierOptions())

    def getBackendName(self) -> str:
        return BACKEND


def _together(operations: list[dist.P2POp]) -> list[_Works]:
    """``batch_isend_irecv``: the messages of a batch, as one call."""
    group, works = dist.group.WORLD, []
    if not any(call.name not in ("send", "recv") for own in _calls for call in own):
        raise fault("a batch of messages before any collective: NCCL connects the processes in the first one")
    _calls.append([])
    for own in operations:
        name, act = ("send", group.gloo.send) if own.op is dist.isend else ("recv", group.gloo.recv)
        _calls[-1].append(_call(name, own.tensor, own.peer))
        works.append(act([_checked(name, own.tensor, message=True)], own.peer, own.tag))
    return [_Works(works)]


def _create(store: dist.Store, rank: int, size: int, timeout: Any) -> PretendedNCCL:
    return PretendedNCCL(store, rank, size, timeout)


@contextmanager
def pretended_nccl(meeting: str, rank: int, size: int) -> Iterator[list[Group]]:
    """Context manager that replaces gloo's process group; this process's calls are appended to the list.

    ``meeting`` is the prefix of the names of two files by which the ``size`` processes connect.
    """
    _calls.clear()
    if not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(BACKEND, _create, devices=[NAME, "cpu"])
    dist.barrier()  # a process can still be connecting, and fail if another one leaves the group
    dist.destroy_process_group()
    dist.init_process_group(BACKEND, init_method=f"file://{meeting}-nccl", rank=rank, world_size=size)
    try:
        with patch.object(dist, "batch_isend_irecv", _together):
            yield _calls
            dist.barrier()
    finally:
        dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{meeting}-gloo", rank=rank, world_size=size)


def as_plain(groups: Sequence[Group]) -> Plain:
    return [[list(call) for call in group] for group in groups]


def as_groups(plain: Plain) -> list[Group]:
    return [[Call(name, dtype, tuple(shape), peer) for name, dtype, shape, peer in group] for group in plain]


def require_met(processes: Sequence[Sequence[Group]]) -> None:
    """Raise ``DeviceFault`` unless all calls of all processes find their counterparts.

    A process continues with its next group when all calls of the current one are done. A message is done when
    the peer's current group has its counterpart, a collective when all processes are at an equal one.
    """
    left = [[list(group) for group in groups if group] for groups in processes]
    while any(left):
        if not _meet(left):
            at = [groups[0][0] if groups else "its end" for groups in left]
            raise fault("; ".join(f"process {p} waits at {call}" for p, call in enumerate(at)))


def _meet(left: list[list[Group]]) -> bool:
    """Remove all calls that can be done now; returns whether there were any."""
    fronts = [groups[0] if groups else [] for groups in left]
    done = _meet_all(fronts) or any(_meet_two(fronts, process) for process in range(len(fronts)))
    for groups in left:
        if groups and not groups[0]:
            groups.pop(0)
    return done


def _meet_all(fronts: list[Group]) -> bool:
    """Remove a collective if all processes have reached it; returns whether they have."""
    first = [front[0] if front else None for front in fronts]
    if first[0] is None or first[0].name in ("send", "recv") or any(call != first[0] for call in first):
        return False
    for front in fronts:
        front.clear()
    return True


def _meet_two(fronts: list[Group], sender: int) -> bool:
    """Remove the first message from ``sender`` to each waiting process; returns whether there was one."""
    done = False
    for receiver, front in enumerate(fronts):
        sent = next((own for own in fronts[sender] if own.name == "send" and own.peer == receiver), None)
        awaited = next((own for own in front if own.name == "recv" and own.peer == sender), None)
        if sent is None or awaited is None:
            continue
        if sent[1:3] != awaited[1:3]:
            raise fault(f"process {sender} sends {sent} and process {receiver} awaits {awaited}")
        fronts[sender].remove(sent)
        front.remove(awaited)
        done = True
    return done
