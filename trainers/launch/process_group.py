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

from trainers.launch.processes import MEETING, PeerLostError

# What torch, gloo and NCCL say, in plain RuntimeErrors, when a collective lacks one of its processes.
_LOST = re.compile(r"connect|connection|timed out|timeout|broken pipe|socket|remote process", re.IGNORECASE)
_groups = itertools.count()  # that this process has joined
_LATE = re.compile(r"timed out|timeout", re.IGNORECASE)


def world() -> tuple[int, int, int]:
    """(process, processes, process on this machine) as torchrun announces them, or (0, 1, 0)."""
    process, processes = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    return int(process), int(processes), int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def process_group(device: torch.device, *, timeout_seconds: float = 1800) -> Iterator[None]:
    """Join the other processes that a launcher started: gloo on CPU, NCCL on GPUs.

    A process that is alone joins nothing. Raises ``PeerLostError``, also out of
    what is done inside, when another process has ended or this one waited longer than the timeout,
    ``ConnectionError`` when they cannot join.
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
        if not _LOST.search(str(error)):
            raise
        raise PeerLostError(timeout_seconds) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _join(device: torch.device, process: int, processes: int, timeout: timedelta) -> None:
    if int(os.environ.get("LOCAL_WORLD_SIZE", 0)) == processes:
        for library in ("GLOO", "NCCL"):  # all are on this machine: no other one need reach them
            os.environ[f"{library}_SOCKET_IFNAME"] = _loopback()
    try:
        store = _meeting_point(processes, timeout)
        store.set_timeout(timeout)
        on_gpu = device.type == "cuda"
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=process,
            world_size=processes,
            timeout=timeout,
            # NCCL connects now, and all of its messages take one group: it need not guess the GPU later.
            device_id=device if on_gpu else None,
        )
    except (RuntimeError, ValueError) as error:
        if _LATE.search(str(error)):
            raise PeerLostError(timeout.total_seconds()) from error
        reason = str(error).splitlines()[0].rpartition(". ")[2]  # without gloo's own file and condition
        raise ConnectionError(f"the {processes} processes cannot be connected: {reason}") from error


def _loopback() -> str:
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")


def _meeting_point(processes: int, timeout: timedelta) -> dist.Store:
    """Where the processes tell each other their addresses: our launcher's file, or torchrun's store.

    torchrun keeps one for all of its restarts and for all jobs of a sweep: the addresses of processes that
    have died, and those of the group before, stand in it still.
    """
    if MEETING in os.environ:
        return dist.FileStore(os.environ[MEETING], processes)
    store, _, _ = next(rendezvous("env://", timeout=timeout))
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"try {restart}, group {next(_groups)}", store)
