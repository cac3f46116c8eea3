"""Speed and memory of a long run, and of a sweep of many short runs, over time.

    python benchmarks/load.py steps [--steps 100000]
    python benchmarks/load.py sweep [--jobs 500] [--wandb]

`steps` trains logistic regression (breast_cancer, 4 workers, Top-k) and logs every step; it prints resident
memory and time per tenth of the run. `sweep` runs jobs of 3 steps in sequence in one process, as `run.py -m`
does, and counts remaining resources after each tenth: memory, open files, threads and child processes. It
prints CPU seconds and wall seconds, because CPU seconds exclude other work on the machine.
"""

import argparse
import gc
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # run.py is not in a package

JOBS = ["model=mlp", "model.hidden=[16]", "workers=4", "trainer.steps=3", "trainer.batch_size=8"]
PARTS = 10


def run_one(overrides: Sequence[str], output: str) -> Path:
    """One run, like a job of run.py; returns its folder."""
    import run
    from trainers.run import session

    config = compose("config", [*overrides, f"output={output}"], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    resolved = run.resolve(
        OmegaConf.masked_copy(config, [key for key in config if key != "hydra"]), overrides
    )
    with redirect_stdout(io.StringIO()):
        _, folder = session.run(resolved)
    return folder


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def children() -> int:
    """Number of child processes of this process, such as W&B's."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            count += int(path.read_text().rsplit(")", 1)[1].split()[1]) == os.getpid()
        except OSError:
            continue
    return count


class Watch:
    """A tracker in place of the terminal that records memory and times at intervals."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.notes: list[tuple[int, float, float, int]] = []

    def log(self, record: dict[str, float]) -> None:
        if "train/loss" in record and record["step"] % self.every == 0:
            self.notes.append((record["step"], time.perf_counter(), time.process_time(), resident_bytes()))

    def finish(self, summary: object) -> None:
        pass


def measure_steps(num_steps: int, output: str) -> Iterator[str]:
    import trainers.run.trackers

    every = num_steps // PARTS
    watch = Watch(every // 2)
    trainers.run.trackers.Terminal = lambda num_steps: watch
    overrides = [
        "model=logistic_regression",
        "data=breast_cancer",
        "workers=4",
        "trainer.batch_size=8",
        f"trainer.steps={num_steps}",
        "trainer.evaluate_every=1000",
        "compressor=top_k",
        "budget.density=0.1",
        "optimizer.lr=0.01",
        "tracker=none",
    ]
    folder = run_one(overrides, output)
    notes = watch.notes
    yield "| steps | wall, ms/step | CPU, ms/step | resident, MiB | grown, bytes per 10,000 steps |"
    yield "|---:|---:|---:|---:|---:|"
    for before, after in zip(notes[1::2], notes[3::2], strict=False):
        steps = after[0] - before[0]
        wall, cpu = (1e3 * (after[i] - before[i]) / steps for i in (1, 2))
        grown = (after[3] - before[3]) * 10_000 / steps
        span, resident = f"{before[0]:,} to {after[0]:,}", f"{after[3] / 2**20:.1f}"
        yield f"| {span} | {wall:.3f} | {cpu:.3f} | {resident} | {grown:,.0f} |"
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps = [record["step"] for record in map(json.loads, lines) if "train/loss" in record]
    complete = steps == list(range(1, num_steps + 1))
    yield f"\nmetrics.jsonl: {len(lines):,} lines, every step once and in order: {complete}"


def measure_sweep(num_jobs: int, wandb: bool, output: str) -> Iterator[str]:
    yield "| jobs | wall, s/job | CPU, s/job | resident, MiB | objects | open files | threads | processes |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    tracker = "tracker=wandb" if wandb else "tracker=none"
    wall, cpu, every = time.perf_counter(), time.process_time(), max(1, num_jobs // PARTS)
    for number in range(num_jobs):
        run_one([*JOBS, tracker, f"seed={number}"], output)
        if (number + 1) % every == 0:
            gc.collect()
            spent = (time.perf_counter() - wall) / every, (time.process_time() - cpu) / every
            files = len(list(Path("/proc/self/fd").iterdir()))
            yield (
                f"| {number + 1} | {spent[0]:.2f} | {spent[1]:.2f} | {resident_bytes() / 2**20:.1f} | "
                f"{len(gc.get_objects()):,} | {files} | {threading.active_count()} | {children()} |"
            )
            wall, cpu = time.perf_counter(), time.process_time()
    finished = len(list(Path(output).glob("*/*/summary.json")))
    runs = len(list(Path(output).glob("*/*/wandb/offline-run-*")))
    yield f"\n{finished} finished runs, {runs} of Weights & Biases"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["steps", "sweep"])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--wandb", action="store_true", help="record each job with W&B, offline")
    arguments = parser.parse_args()
    output = tempfile.mkdtemp()
    try:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            if arguments.what == "steps":
                lines = measure_steps(arguments.steps, output)
            else:
                lines = measure_sweep(arguments.jobs, arguments.wandb, output)
            for line in lines:
                print(line, flush=True)
    finally:
        shutil.rmtree(output)


if __name__ == "__main__":
    main()
