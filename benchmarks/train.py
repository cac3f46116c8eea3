"""Samples or tokens per second of the presets, and the share of compression in a step.

    python benchmarks/train.py [EXPERIMENT ...] [--steps 10] [--root DIR] [--device cpu|cuda] [KEY=VALUE ...]

Each experiment (default: all of small/) runs through run.py's own trainer, one process and one thread on a
CPU, with `none`, `top_k` and `hard_threshold`. Each step is timed, and the result is the median without the
first two steps. Reading is the time for batches, gradient the forward and backward passes of all workers,
reduction the compression and its communication, update the optimizer. The remaining time of a step is the
ledger's.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from trainers.comm.communicator import Communicator
from trainers.config.errors import ConfigError
from trainers.launch.memory import keep_freed_memory
from trainers.loop import run

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # run.py is not in a package

METHODS = ("none", "top_k", "hard_threshold")
UNCOUNTED = 2
PARTS = ("step", "gradient", "reduce", "update")


class Records(list):
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


def build(overrides: list[str], device: torch.device, communicator: Communicator | None = None) -> Any:
    """The trainer of one experiment, in this process alone or in the processes of ``communicator``."""
    from trainers.run.build import build_training

    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        del config.hydra
        config = OmegaConf.to_container(config, resolve=True)
    return build_training(config, communicator or Communicator(config["workers"], device=device), device)


def measure(overrides: list[str], steps: int, device: torch.device) -> dict[str, Any]:
    """Median seconds of the parts of a step, and the amount of data per step."""
    length = [f"trainer.steps={steps + UNCOUNTED}", "trainer.log_every=1", "trainer.evaluate_every=1e6"]
    trainer = build(overrides + length, device)
    loader = TimedLoader(trainer.loader)
    object.__setattr__(trainer, "loader", loader)
    object.__setattr__(trainer, "measure", lambda model: {})  # evaluation is not timed
    records = Records()
    run(trainer, records)
    counted = records[UNCOUNTED:]
    found = {part: statistics.median(r[f"time/{part}_seconds"] for r in counted) for part in PARTS}
    found["read"] = statistics.median(loader.seconds[UNCOUNTED:])
    return found | {"amount": loader.amount, "unit": loader.unit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="experiments, and overrides with an = in them")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--root", default=os.environ.get("DATA_DIR", ".data"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    overrides = [word for word in options.words if "=" in word]
    experiments = [word for word in options.words if "=" not in word] or presets("small")
    device = torch.device(options.device)
    os.environ["DATA_DIR"] = options.root
    torch.set_num_threads(1)
    keep_freed_memory()  # like run.py
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, one thread"
    print(f"torch {torch.__version__}, {where}; medians of {options.steps} steps\n")
    print("| experiment | compressor | per second | step, ms | reading | gradient | reduction | update |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for experiment in experiments:
        for method in METHODS:
            chosen = [f"experiment={experiment}", f"compressor={method}", *overrides]
            try:
                found = measure(chosen, options.steps, device)
            except (ConfigError, OSError, ValueError) as error:  # for example, its data is missing
                print(f"| {experiment} | {method} | {' '.join(str(error.__cause__ or error).split())} |")
                break
            step = found["step"]
            shares = " | ".join(f"{found[p] / step:.1%}" for p in ("read", "gradient", "reduce", "update"))
            rate = f"{found['amount'] / step:,.0f} {found['unit']}"
            print(f"| {experiment} | {method} | {rate} | {1e3 * step:,.0f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
