"""Measured speed of gloo between two processes of this machine.

As a program it prints the speed in bits per second.
"""

import json
import os
import statistics
import subprocess
import sys
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
    """Bits per second at which two processes of this machine all-reduce through the loopback interface.

    Another program starts the two processes: fresh processes import the main module of the one that starts
    them, which would run a script once more. Raises ``RuntimeError`` if they fail.
    """
    # An empty entry of sys.path is the current folder. Without PYTHONSAFEPATH, -m would search the current
    # folder before this process's path.
    path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "PYTHONSAFEPATH": "1"}
    environment = os.environ | path
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise RuntimeError(f"the speed of gloo could not be measured: {said}")
    try:
        return float(done.stdout.split()[-1])
    except (IndexError, ValueError):
        raise RuntimeError(f"the speed of gloo could not be read from {done.stdout!r}") from None


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


def main(module: str) -> None:
    """Print the speed; ``module`` is this module's name."""
    with TemporaryDirectory(prefix="total-error-") as folder:
        answer = Path(folder) / "rate"
        launch(f"{module}:time_all_reduces", str(answer), 2)
        print(answer.read_text(encoding="utf-8"))


if __name__ == "__main__":
    assert __spec__ is not None  # python -m
    main(__spec__.name)
