"""Processes that communicate over gloo, for tests that compare layouts."""

import os
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from warm_template import fork_server

# Modules with slow imports
PRELOADED = [
    *("torch", "torch._dynamo", "torch.distributed", "numba_ready", "scipy.sparse", "scipy.special"),
    *("hydra.main", "compressors.kernels.cpu.backend", "methods", "run", "trainers.loop"),
    *("contract.processes", "trainers.run.build", "pretended_nccl", "training", "frozen_server"),
]


def run_in_processes(entry: Callable[..., Any], processes: int, *arguments: Any) -> list[Any]:
    """Run ``entry(process, processes, *arguments)`` in new processes; returns the result of each.

    ``entry`` must be importable from tests/helpers and return tensors, numbers, strings, lists and dicts.
    The processes are forked by a server that has not computed anything.
    """
    start_server()
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(
            _child, (processes, folder, entry, arguments), nprocs=processes, start_method="forkserver"
        )
        return [torch.load(Path(folder) / f"{p}.pt", weights_only=True) for p in range(processes)]


@cache
def start_server() -> None:
    """Start the server that forks the other processes, with the module path of this process.

    A process has one server, which imports modules only when it starts. Start it before other code starts a
    server with fewer modules.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")
        listener.bind(address)
        listener.listen()
        ends, keeps = os.pipe()
        fork_server("processes", [listener.fileno(), ends], modules=PRELOADED, path=sys.path)
        os.close(ends)
    resource_tracker.ensure_running()
    server = forkserver._forkserver
    server._forkserver_address, server._forkserver_alive_fd = address, keeps
    # The original would start a second server, or wait for the end of this one
    server.ensure_running = resource_tracker.ensure_running


def _child(process: int, processes: int, folder: str, entry: Callable[..., Any], arguments: tuple) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=process, world_size=processes)
    try:
        torch.save(entry(process, processes, *arguments), Path(folder) / f"{process}.pt")
        dist.barrier()
    finally:
        dist.destroy_process_group()
