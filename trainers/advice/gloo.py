"""Measured speed of gloo between two processes of this machine."""

import json
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from trainers.comm.communicator import Communicator
from trainers.comm.links import all_reduce_bytes
from trainers.launch.memory import keep_freed_memory
from trainers.launch.process_group import process_group, world
from trainers.launch.processes import launch

PROBE_ELEMENTS, PROBES = 2**22, 5


def gloo_bits_per_second() -> float:
    """Bits per second at which two processes of this machine all-reduce through the loopback interface."""
    with TemporaryDirectory(prefix="total-error-") as folder:
        answer = Path(folder) / "rate"
        launch(f"{__name__}:time_all_reduces", str(answer), 2)
        return float(json.loads(answer.read_text(encoding="utf-8")))


def time_all_reduces(answer: str) -> None:
    """In one of two processes: time all-reduces; the first process writes the rate to the file ``answer``."""
    process, processes, _ = world()
    torch.set_num_threads(1)
    keep_freed_memory()
    with process_group(torch.device("cpu"), timeout_seconds=60):
        communicator = Communicator(processes, rank=process, world_size=processes)
        rows, taken = torch.zeros(1, PROBE_ELEMENTS), []
        for _ in range(1 + PROBES):
            communicator.all_reduce_max(0)  # both begin together
            started = time.perf_counter()
            communicator.all_reduce_mean([rows])
            taken.append(time.perf_counter() - started)
    if process == 0:
        rate = 8 * all_reduce_bytes(rows.nbytes, processes) / statistics.median(taken[1:])
        Path(answer).write_text(json.dumps(rate), encoding="utf-8")
