"""The process group of a run: rendezvous and network interface."""

import itertools
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from trainers.launch.processes import RENDEZVOUS_FILE, PeerLostError

# Words in the RuntimeErrors of torch, gloo and NCCL after another process of a collective was lost
_LOST = re.compile(r"connect|connection|timed out|timeout|broken pipe|socket|remote process", re.IGNORECASE)
_groups = itertools.count()  # number of groups that this process has joined
_LATE = re.compile(r"timed out|timeout", re.IGNORECASE)


def world() -> tuple[int, int, int]:
    """(process, processes, process on this machine) from torchrun's variables; by default (0, 1, 0)."""
    process, processes = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    return int(process), int(processes), int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def process_group(device: torch.device, *, timeout_seconds: float) -> Iterator[None]:
    """Context manager: the process group of all processes that a launcher started; none for one process.

    The backend is gloo on CPUs and NCCL on GPUs. Raises ``PeerLostError``, also for errors within the block,
    if another process has ended or did not answer before the timeout, and ``ConnectionError`` if the
    processes cannot be connected.
    """
    process, processes, _ = world()
    if processes == 1:
        yield
        return
    try:
        _join(device, process, processes, timedelta(seconds=timeout_seconds))
        yield
        dist.barrier()  # gloo: a process that leaves early can make another one abort
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise PeerLostError(timeout_seconds) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _is_lost(error: RuntimeError) -> bool:
    """Whether an error is one of torch's, gloo's or NCCL's about another process, and not, say, of CUDA."""
    text = str(error)
    is_theirs = isinstance(error, dist.DistError) or re.search("gloo|nccl", text, re.IGNORECASE)
    return bool(is_theirs and _LOST.search(text))


def _join(device: torch.device, process: int, processes: int, timeout: timedelta) -> None:
    if int(os.environ.get("LOCAL_WORLD_SIZE", 0)) == processes:
        loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")
        for library in ("GLOO", "NCCL"):  # all processes are on this machine: no other one needs access
            os.environ[f"{library}_SOCKET_IFNAME"] = loopback
    try:
        store = _rendezvous_store(processes, timeout)
        store.set_timeout(timeout)
        on_gpu = device.type == "cuda"
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=process,
            world_size=processes,
            timeout=timeout,
            # With the GPU given, NCCL connects at once and need not guess it at the first collective.
            device_id=device if on_gpu else None,
        )
    except (RuntimeError, ValueError) as error:
        if _LATE.search(str(error)):
            raise PeerLostError(timeout.total_seconds()) from error
        reason = str(error).splitlines()[0].rpartition(". ")[2]  # without gloo's source file and condition
        raise ConnectionError(f"the {processes} processes cannot be connected: {reason}") from error


def _rendezvous_store(processes: int, timeout: timedelta) -> dist.Store:
    """The store with which processes exchange their addresses: our launcher's file, or torchrun's store.

    torchrun has one store for all restarts and all jobs of a sweep, which still has the addresses of earlier
    groups and of ended processes. A prefix therefore separates restarts and groups. If torchrun does not
    share its store (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1), the first process opens a new one after each
    restart. The numbers of restarts then must not be in the prefix: they differ between a machine that has
    rejoined and the others.
    """
    if RENDEZVOUS_FILE in os.environ:
        return dist.FileStore(os.environ[RENDEZVOUS_FILE], processes)
    store, _, _ = next(rendezvous("env://", timeout=timeout))
    is_new = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False"
    restart = "0" if is_new else os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"try {restart}, group {next(_groups)}", store)
