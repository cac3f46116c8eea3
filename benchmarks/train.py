"""Samples or tokens per second of the presets, and the share of compression in a step.

    python benchmarks/train.py [EXPERIMENT ...] [--steps 10] [--device cpu|cuda] [KEY=VALUE ...]

Each experiment (default: all of small/; ``default`` for none) runs through run.py's own trainer, one process
and one thread on a CPU, with `none`, `top_k` and `hard_threshold`. Data are read from DATA_DIR. Each step is
timed, and the result is the median without the first two steps. Reading is the time for batches, gradient the
forward and backward passes of all workers, reduction the compression and its communication, update the
optimizer. The remaining time of a step is that of the ledger and of diagnostics.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.pages import columns, head, row
from trainers.comm.communicator import Communicator
from trainers.config.composition import compose
from trainers.config.errors import ConfigError
from trainers.launch.memory import keep_freed_memory
from trainers.loop import run
from trainers.run.build import build_training
from trainers.training import Training

ROOT = Path(__file__).parent.parent
METHODS = ("none", "top_k", "hard_threshold")
UNCOUNTED = 2
PARTS = ("step", "gradient", "reduce", "update")


class Records(list[dict[str, float]]):
    def log(self, record: dict[str, float]) -> None:
        if "time/step_seconds" in record:
            self.append(record)


class TimedLoader:
    """A loader that times its batches and counts their samples or tokens."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.seconds: list[float] = []
        self.amount, self.unit = 0, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def batches(self, step: int) -> list[Any]:
        started = time.perf_counter()
        batches = self.loader.batches(step)
        self.seconds.append(time.perf_counter() - started)
        first = [batch[0] for batch in batches]
        is_text = first[0].dtype == torch.int64 and first[0].dim() == 2
        self.unit = "tokens" if is_text else "samples"
        self.amount = sum(field.numel() if is_text else len(field) for field in first)
        return batches


def presets(folder: str) -> list[str]:
    return [f"{folder}/{path.stem}" for path in sorted((ROOT / "conf/experiment" / folder).glob("*.yaml"))]


def training(overrides: list[str], steps: int, device: torch.device) -> Training:
    """A training of ``steps`` steps after the uncounted ones, without evaluations."""
    length = [f"trainer.steps={steps + UNCOUNTED}", "trainer.log_every=1", "trainer.evaluate_every=1e6"]
    config = compose([*overrides, *length])
    trainer = build_training(config, Communicator(config["workers"], device=device), device)
    object.__setattr__(trainer, "measure", lambda model: {})
    return trainer


def counted(trainer: Training) -> list[dict[str, float]]:
    """Train; returns the records of the counted steps."""
    records = Records()
    run(trainer, records)
    return records[UNCOUNTED:]


def measure(overrides: list[str], steps: int, device: torch.device) -> tuple[dict[str, float], str]:
    """Median seconds of the parts of a step, and the amount of data per second."""
    trainer = training(overrides, steps, device)
    loader = TimedLoader(trainer.loader)
    object.__setattr__(trainer, "loader", loader)
    records = counted(trainer)
    found = {part: statistics.median(r[f"time/{part}_seconds"] for r in records) for part in PARTS}
    found["read"] = statistics.median(loader.seconds[UNCOUNTED:])
    return found, f"{loader.amount / found['step']:,.0f} {loader.unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="experiments, and overrides with an = in them")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    overrides = [word for word in options.words if "=" in word]
    experiments = [word for word in options.words if "=" not in word] or presets("small")
    torch.set_num_threads(1)
    keep_freed_memory()  # like run.py
    print(head("Throughput", "python benchmarks/train.py"))
    shares = ("reading", "gradient", "reduction", "update")
    print(columns("experiment", "compressor", "per second", "step, ms", *shares, text=2))
    for experiment in experiments:
        preset = [] if experiment == "default" else [f"experiment={experiment}"]
        for method in METHODS:
            try:
                found, rate = measure(
                    [*preset, f"compressor={method}", *overrides], options.steps, torch.device(options.device)
                )
            except (ConfigError, OSError, ValueError) as error:  # for example, its data is missing
                print(row(experiment, method, " ".join(str(error.__cause__ or error).split())))
                continue
            step = found["step"]
            parts = [f"{found[part] / step:.1%}" for part in ("read", "gradient", "reduce", "update")]
            print(row(experiment, method, rate, f"{1e3 * step:,.0f}", *parts), flush=True)


if __name__ == "__main__":
    main()
