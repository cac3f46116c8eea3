"""Speed and memory of a long run, and of a sweep of many short runs, over time.

    python benchmarks/load.py steps [--steps 100000]
    python benchmarks/load.py sweep [--jobs 500] [--wandb]

`steps` trains logistic regression (breast_cancer, 4 workers, Top-k) and logs every step; it prints resident
memory and time per tenth of the run. `sweep` runs jobs of 3 steps in sequence in one process and counts
remaining resources after each tenth: memory, open files, threads and child processes. It prints CPU seconds
and wall seconds, because CPU seconds exclude other work on the machine.
"""

import argparse
import gc
import io
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.pages import columns, head, row
from trainers.api import FinishedRun, compose, train
from trainers.run import training

PARTS = 10
LONG = ["model=logistic_regression", "data=breast_cancer", "workers=4", "trainer.batch_size=8"]
LONG += ["trainer.evaluate_every=1000", "compressor=top_k", "budget.density=0.1", "optimizer.lr=0.01"]
JOB = ["model=mlp", "model.hidden=[16]", "workers=4", "trainer.steps=3", "trainer.batch_size=8"]


def run_one(overrides: Sequence[str], output: str, terminal: Any = None) -> FinishedRun:
    """One run in this process, without its output; its records go to ``terminal`` if there is one."""
    with redirect_stdout(io.StringIO()), ExitStack() as stack:
        if terminal is not None:
            stack.enter_context(patch.object(training, "Terminal", lambda *_, **__: terminal))
        return train(compose(*overrides, f"output={output}"))


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def children() -> int:
    """Number of child processes of this process, such as W&B's."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            count += int(path.read_text().rsplit(")", 1)[1].split()[1]) == os.getpid()
        except OSError:  # a process has ended meanwhile
            continue
    return count


class Watch:
    """A tracker in place of the terminal that records memory and times at intervals."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.notes: list[tuple[int, float, float, float]] = []

    def log(self, record: dict[str, Any]) -> None:
        if "train/loss" in record and record["step"] % self.every == 0:
            self.notes.append((record["step"], time.perf_counter(), time.process_time(), resident_mib()))

    def finish(self, summary: object) -> None:
        pass


def measure_steps(num_steps: int, output: str) -> Iterator[str]:
    watch = Watch(num_steps // PARTS)
    found = run_one([*LONG, "tracker=none", f"trainer.steps={num_steps}"], output, watch)
    yield columns("steps", "wall, ms/step", "CPU, ms/step", "resident, MiB")
    for before, after in zip(watch.notes, watch.notes[1:], strict=False):
        steps = after[0] - before[0]
        times = [f"{1e3 * (after[i] - before[i]) / steps:.3f}" for i in (1, 2)]
        yield row(f"{before[0]:,} to {after[0]:,}", *times, f"{after[3]:.2f}")
    steps = [record["step"] for record in found.records if "train/loss" in record]
    yield f"\nmetrics.jsonl has every step once and in order: {steps == list(range(1, num_steps + 1))}"


def measure_sweep(num_jobs: int, wandb: bool, output: str) -> Iterator[str]:
    counts = ("resident, MiB", "objects", "open files", "threads", "processes")
    yield columns("jobs", "wall, s/job", "CPU, s/job", *counts)
    tracker = "tracker=wandb" if wandb else "tracker=none"
    wall, cpu, every = time.perf_counter(), time.process_time(), max(1, num_jobs // PARTS)
    for number in range(1, num_jobs + 1):
        run_one([*JOB, tracker, f"seed={number}"], output)
        if number % every == 0:
            gc.collect()
            spent = (time.perf_counter() - wall) / every, (time.process_time() - cpu) / every
            files = len(list(Path("/proc/self/fd").iterdir()))
            left = f"{resident_mib():.1f}", f"{len(gc.get_objects()):,}", files, threading.active_count()
            yield row(number, *(f"{seconds:.2f}" for seconds in spent), *left, children())
            wall, cpu = time.perf_counter(), time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["steps", "sweep"])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--wandb", action="store_true", help="record each job with W&B, offline")
    options = parser.parse_args()
    print(head("Long runs and sweeps", "python benchmarks/load.py"))
    with tempfile.TemporaryDirectory() as output:
        if options.what == "steps":
            lines = measure_steps(options.steps, output)
        else:
            lines = measure_sweep(options.jobs, options.wandb, output)
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
