"""The default job with 8 workers in one process, on the device and on the CPU, as commands of run.py."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu.measuring import Options, Record

ROOT = Path(__file__).parents[2]
SEEDS = (0, 1, 2)
TOP_K, THRESHOLD = ("top_k", "budget.density=0.01"), ("hard_threshold",)
NUMBERS = {
    "test/accuracy": "accuracy",
    "compression/density_mean": "density",
    "compression/total_error": "total_error",
    "comm/bytes_sent_total": "bytes_sent",
    "comm/link_bytes_sent_total": "link_bytes_sent",
}
SHORT = ("trainer.steps=2", "model=mlp", "workers=2")


class Run(NamedTuple):
    device: str
    method: tuple[str, ...]
    seed: int

    def overrides(self, output: str, quick: bool) -> list[str]:
        words = [f"compressor={self.method[0]}", *self.method[1:]]
        words += [f"device={self.device}", f"seed={self.seed}", "tracker=none", f"output={output}"]
        return [*words, *(SHORT if quick else ())]


def measure(options: Options, record: Record) -> None:
    """All runs, several at once, because their speed is not measured."""
    here, seeds = options.device.type, SEEDS[:1] if options.quick else SEEDS
    runs = [Run(device, TOP_K, 0) for device in (here, "cpu")]
    runs += [Run(device, THRESHOLD, seed) for seed in seeds for device in (here, "cpu")]
    found: dict[Run, dict[str, float]] = {}
    with ThreadPoolExecutor(min(len(runs), os.cpu_count() or 1)) as pool:
        started = [(run, place, pool.submit(_numbers, run, place, options)) for place, run in enumerate(runs)]
        for run, place, future in started:
            numbers = future.result()
            side = "CPU" if place % 2 else "device"
            found[run._replace(device=side)] = numbers
            method = " ".join(run.method)
            record("jobs", method=method, device=run.device, side=side, seed=run.seed, **numbers)
    ours, theirs = (found[Run(side, TOP_K, 0)]["bytes_sent"] for side in ("device", "CPU"))
    record(
        "comparison", method="top_k", quantity="bytes_sent", device=ours, cpu=theirs, agrees=ours == theirs
    )
    for quantity in ("density", "accuracy"):
        sides = [[found[Run(side, THRESHOLD, s)][quantity] for s in seeds] for side in ("device", "CPU")]
        here_mean, cpu_mean = map(statistics.mean, sides)
        spread = max(statistics.stdev(side) for side in sides) if len(seeds) > 1 else 0.0
        record(
            "comparison",
            method="hard_threshold",
            quantity=quantity,
            device=here_mean,
            cpu=cpu_mean,
            spread_of_seeds=spread,
            agrees=abs(here_mean - cpu_mean) <= 2 * spread,
        )


def _numbers(run: Run, place: int, options: Options) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / str(place))
        words = run.overrides(output, options.quick)
        done = _start(words, max(1.0, options.seconds_left))
        if done.returncode:
            silent = f"no message, exit status {done.returncode}"
            raise RuntimeError(f"run.py {' '.join(words)}: {(done.stderr.splitlines() or [silent])[-1]}")
        (path,) = Path(output).glob("*/*/summary.json")
        summary = json.loads(path.read_text(encoding="utf-8"))
    return {name: summary[key] for key, name in NUMBERS.items()}


def _start(overrides: list[str], seconds: float) -> subprocess.CompletedProcess:
    command = [sys.executable, "run.py", *overrides]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
