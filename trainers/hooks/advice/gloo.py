"""Measured speed of gloo between processes of this machine.

As a program, with their number, it prints the fields of a ``Speed`` as JSON.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from trainers.comm.communicator import Communicator
from trainers.comm.links import all_reduce_bytes
from trainers.launch.memory import keep_freed_memory
from trainers.launch.process_group import process_group, world
from trainers.launch.processes import launch

PROBE_ELEMENTS, PROBES = 2**22, 5
MESSAGES, APART_SECONDS = 100, 0.002  # processes begin a message that far apart, as after a computation


class Speed(NamedTuple):
    """Speed of collectives without a network."""

    bits_per_second: float  # of means of large rows
    seconds: float  # that a short collective takes, from the last process that begins it


def gloo_speed(processes: int = 2) -> Speed:
    """The speed at which ``processes`` processes of this machine communicate through the loopback interface.

    Another program starts the processes: fresh processes import the main module of the one that starts
    them, which would run a script once more. Raises ``RuntimeError`` if they fail.
    """
    # An empty entry of sys.path is the current folder. Without PYTHONSAFEPATH, -m would search the current
    # folder before this process's path.
    path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "PYTHONSAFEPATH": "1"}
    environment = os.environ | path
    command = [sys.executable, "-m", __name__, str(processes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise RuntimeError(f"the speed of gloo could not be measured: {said}")
    return Speed(*json.loads(done.stdout.splitlines()[-1]))


def measure(answer: str) -> None:
    """In one of the processes: time collectives; the first process writes the ``Speed`` to ``answer``."""
    process, processes, _ = world()
    torch.set_num_threads(1)
    keep_freed_memory()
    with process_group(torch.device("cpu"), timeout_seconds=60):
        communicator = Communicator(processes, rank=process, world_size=processes)
        found = Speed(_bits_per_second(communicator), _short_seconds(communicator))
    if process == 0:
        Path(answer).write_text(json.dumps(found), encoding="utf-8")


def _bits_per_second(communicator: Communicator) -> float:
    rows, taken = torch.zeros(1, PROBE_ELEMENTS), []
    for _ in range(1 + PROBES):
        communicator.all_reduce_max(0)  # all begin together
        started = time.perf_counter()
        communicator.all_reduce_mean([rows])
        taken.append(time.perf_counter() - started)
    return 8 * all_reduce_bytes(rows.nbytes, communicator.size) / statistics.median(taken[1:])


def _short_seconds(communicator: Communicator) -> float:
    """The mean: on few cores, one in ten takes until the scheduler's next tick, of milliseconds."""
    apart, taken = random.Random(communicator.rank), []
    for _ in range(1 + MESSAGES):
        begins = time.perf_counter() + APART_SECONDS * apart.random()
        while time.perf_counter() < begins:
            pass
        began = torch.tensor([[time.perf_counter()]], dtype=torch.float64)  # the clock of the machine
        last = communicator.collect(began).max().item()
        taken.append(time.perf_counter() - last)
    return statistics.mean(taken[1:])


def main(module: str, processes: int) -> None:
    """Print the speed; ``module`` is this module's name."""
    with TemporaryDirectory(prefix="total-error-") as folder:
        answer = Path(folder) / "speed"
        launch(f"{module}:measure", str(answer), processes)
        print(answer.read_text(encoding="utf-8"))


if __name__ == "__main__":
    assert __spec__ is not None  # python -m
    main(__spec__.name, int(sys.argv[1]))
