"""Cost of diagnostics, separately and all together, as a share of training with measurements every 50 steps.

    python benchmarks/diagnostics.py [EXPERIMENT ...] [KEY=VALUE ...] [--steps 200] [--every 50]
        [--only NAMES ...]

Each experiment (``default`` for none) runs through run.py's own trainer, one process and one thread on a CPU.
Times are CPU times of the process, so other work on the machine has little effect. The cost of a probe, in
measured and in other steps, is the median of the time in it minus the time of its reducer. The time of a step
without diagnostics is the median of the same run's steps minus the probe's time, without optimizer and
reading. The cost is the probe's time in one measured and ``every - 1`` other steps, over the time of
``every`` steps without diagnostics.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from train import Records, build  # in this folder

from compressors.api import Reducer, Wrapper
from trainers.diagnostics.probe import Probe
from trainers.launch.memory import keep_freed_memory
from trainers.loop import run

EXPERIMENTS = ("small/lstm", "small/resnet18_digits", "quick")
CHOICES = ("xi", "selection_error", "staleness", "bound", "xi,selection_error,staleness")
CHOICES += ("xi,selection_error,staleness,bound", "gap", "hindsight")


class Seconds:
    """Seconds of a probe in each step, without the reducer that it wraps."""

    def __init__(self, probe: Probe) -> None:
        self.measured: list[float] = []
        self.between: list[float] = []
        self.inside = self.latest = 0.0
        self.probe, self.reduce, self.of_run = probe, probe.reduce, probe.of_run
        probe.reduce, probe.inner, probe.of_run = self._outer, Timed(probe.inner, self), self._afterwards

    def _outer(self, *arguments: Any) -> Any:
        started = time.process_time()
        found = self.reduce(*arguments)
        self.latest = time.process_time() - started - self.inside
        (self.measured if self.probe.is_due(arguments[2].number + 1) else self.between).append(self.latest)
        return found

    def _afterwards(self, *arguments: Any) -> Any:
        started = time.process_time()
        found = self.of_run(*arguments)
        self.measured[-1] += time.process_time() - started
        return found


class Timed(Wrapper):
    """The wrapped reducer, timed."""

    def __init__(self, inner: Reducer, seconds: Seconds) -> None:
        self.inner = inner
        self.seconds = seconds

    def init(self, segments: Any) -> Any:
        return self.inner.init(segments)

    def reduce(self, *arguments: Any) -> Any:
        started = time.process_time()
        found = self.inner.reduce(*arguments)
        self.seconds.inside = time.process_time() - started
        return found


def train(experiment: str, overrides: list[str], steps: int) -> tuple[float, Seconds]:
    """Median seconds of a step without the probe, and the seconds of the probe."""
    length = [f"trainer.steps={steps}", "trainer.log_every=1000000", "trainer.evaluate_every=1e6"]
    preset = [] if experiment == "default" else [f"experiment={experiment}"]
    trainer = build([*preset, *overrides, *length], torch.device("cpu"))
    object.__setattr__(trainer, "measure", lambda model: {})  # evaluation is not timed
    state, taken = trainer.new_state(), []
    seconds = Seconds(state.probe)
    step = state.gradient_step

    def timed(*arguments: Any, **keywords: Any) -> Any:
        started = time.process_time()
        losses = type(step).run(step, *arguments, **keywords)
        taken.append(time.process_time() - started - seconds.latest)
        return losses

    step.run = timed
    object.__setattr__(trainer, "_state", lambda: state)
    run(trainer, Records())
    return statistics.median(taken), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="experiments, and overrides with an = in them")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--only", nargs="+", default=CHOICES, help="names with commas between")
    options = parser.parse_args()
    if options.steps < 2 * options.every:
        parser.error(f"--steps must be at least twice --every, got {options.steps} and {options.every}")
    overrides = [word for word in options.words if "=" in word]
    experiments = [word for word in options.words if "=" not in word] or EXPERIMENTS
    torch.set_num_threads(1)
    keep_freed_memory()  # like run.py
    print(f"torch {torch.__version__}, CPU, one thread; medians of {options.steps} steps\n")
    print("| experiment | compressor | diagnostics | step without, ms | measured, ms | others, ms | cost |")
    print("|---|---|---|---:|---:|---:|---:|")
    for experiment in experiments:
        for method in ("top_k", "hard_threshold"):
            chosen = [*overrides, f"compressor={method}"]
            for names in options.only:
                watched = [*chosen, f"diagnostics=[{names}]", f"diagnostics.every={options.every}"]
                plain, spent = train(experiment, watched, options.steps)
                measured, between = map(statistics.median, (spent.measured, spent.between))
                share = (measured + (options.every - 1) * between) / (options.every * plain)
                cells = f"{1e3 * plain:,.2f} | {1e3 * measured:,.2f} | {1e3 * between:,.3f} | {share:.2%}"
                print(f"| {experiment} | {method} | {names} | {cells} |", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
