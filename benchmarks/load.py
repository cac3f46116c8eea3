"""Speed and memory of a long run over time.

    python benchmarks/load.py [--steps 100000]

Trains logistic regression (breast_cancer, 4 workers, Top-k) and logs every step; prints resident memory and
time per tenth of the run: wall seconds, and CPU seconds, which exclude other work on the machine.
"""

import argparse
import io
import os
import tempfile
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


def run_one(overrides: Sequence[str], output: str, terminal: Any = None) -> FinishedRun:
    """One run in this process, without its output; its records go to ``terminal`` if there is one."""
    with redirect_stdout(io.StringIO()), ExitStack() as stack:
        if terminal is not None:
            stack.enter_context(patch.object(training, "Terminal", lambda *_, **__: terminal))
        return train(compose(*overrides, f"output={output}"))


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    print(head("Long runs", "python benchmarks/load.py"))
    with tempfile.TemporaryDirectory() as output:
        for line in measure_steps(options.steps, output):
            print(line, flush=True)


if __name__ == "__main__":
    main()
