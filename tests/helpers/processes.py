"""Real processes that talk over gloo, for tests that hold one layout against another."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# What takes seconds to import; what is ours each process imports itself, from where this process does
PRELOADED = ["torch", "torch._dynamo", "torch.distributed", "numba", "scipy.sparse", "scipy.special"]


def run_in_processes(entry: Callable[..., Any], processes: int, *arguments: Any) -> list[Any]:
    """``entry(process, processes, *arguments)`` in fresh processes; what each one returned.

    ``entry`` must be importable from tests/helpers and return tensors, numbers, strings, lists
    and dicts. They are forked by a server that has computed nothing.
    """
    multiprocessing.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(
            _child, (processes, folder, entry, arguments), nprocs=processes, start_method="forkserver"
        )
        return [torch.load(Path(folder) / f"{p}.pt", weights_only=True) for p in range(processes)]


def _child(process: int, processes: int, folder: str, entry: Callable[..., Any], arguments: tuple) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=process, world_size=processes)
    try:
        torch.save(entry(process, processes, *arguments), Path(folder) / f"{process}.pt")
        dist.barrier()
    finally:
        dist.destroy_process_group()
