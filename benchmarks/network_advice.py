"""Predicted steps of the network benchmark beside the measured ones.

The prediction is that of ``python -m results breakeven``, from costs that are measured on this machine before
the hosts are created.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import netns
from network_measured import Measured, Method, Rate

from trainers.network_model.step_times import Cost, Line, Network, predict

PREDICTED = {  # measured method: predicted one
    "ddp": "dense",
    "ddp_fp16": "fp16",
    "ddp_powersgd": "powersgd",
    "top_k": "top_k",
    "hard_threshold": "hard_threshold",
}
LATENCY_SECONDS = 5e-5  # the command's default


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Costs of one worker's step. Raises ``netns.Refused`` if they cannot be measured."""
    overrides = [
        "model=resnet18",
        f"trainer.batch_size={options.batch_size}",
        *("workers=1", "compressor=none", "tracker=none", "threads=1"),
    ]
    asked = {"overrides": overrides, "settings": {"density": options.density}, "compute_seconds": None}
    command = [sys.executable, "-m", "trainers.hooks.advice", json.dumps(asked)]
    root = Path(__file__).parent.parent
    done = subprocess.run(
        command,
        cwd=root,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise netns.Refused(f"costs cannot be measured: {' '.join(done.stderr.split())}")
    return json.loads(done.stdout.splitlines()[-1])


def describe(found: dict[str, Any], measured: Measured, rates: list[Rate]) -> list[str]:
    """A table of predicted and measured steps, and the largest error."""
    costs = {
        name: Cost(name, *sent, Line(*seconds), Line(*rounds))
        for name, *sent, seconds, rounds in found["costs"]
    }
    backend = found["backend_bits_per_second"] or math.inf
    lines = [
        f"\n## Predicted steps, {measured.hosts} hosts\n",
        f"Measured: compute {1e3 * found['compute_seconds']:.1f} ms, gloo {backend / 1e9:.2f} Gbit/s\n",
        "| method | " + " | ".join(f"{at.text}: predicted, ms | measured, ms | off" for at in rates) + " |",
        "|---|" + "---:|" * 3 * len(rates),
    ]
    errors = []
    for name, cost in PREDICTED.items():
        method, cells = Method(name), []
        for at in rates:
            if (method, at) not in measured.steps:
                break
            network = Network(at.bits_per_second, LATENCY_SECONDS, backend)
            expected = predict(costs[cost], found["compute_seconds"], measured.hosts, network).step
            step = measured.parts(method, at).step
            errors.append(expected / step - 1)
            cells += [f"{1e3 * expected:,.1f}", f"{1e3 * step:,.1f}", f"{100 * errors[-1]:+.0f} %"]
        if cells:
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    largest = f"{100 * min(errors):+.0f} to {100 * max(errors):+.0f} %" if errors else "none measured"
    return [*lines, f"\nErrors: {largest}."]
