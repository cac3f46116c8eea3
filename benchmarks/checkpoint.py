"""Cost of a checkpoint: ResNet-18 with 8 workers, the main job.

    python benchmarks/checkpoint.py [--steps 24] [KEY=VALUE ...]

A checkpoint is written every 8 steps. Copying the state stops the training (capture). A thread writes the
copy (write), which slows concurrent steps. The cost of a checkpoint is the capture plus the additional time
of these steps over the median of the others. It is divided by the default interval. The largest resident
memory of the process is printed without checkpoints, from a first run, and with checkpoints.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from benchmarks.load import run_one
from benchmarks.pages import columns, head, row
from trainers.checkpoint.saving import Checkpoints
from trainers.checkpoint.state import TrainingState

EVERY = 8
UNCOUNTED = 2  # first steps, which are not timed
INTERVAL_SECONDS = 60 * 5  # conf/checkpoint/default.yaml
Span = tuple[float, float]  # start and end


class StepEnds:
    """A tracker that records the time of each step."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def log(self, record: dict[str, float]) -> None:
        if "time/step_seconds" in record:
            now = time.perf_counter()
            self.spans.append((now - record["time/step_seconds"], now))

    def finish(self, summary: object) -> None:
        pass


def timed(method: Callable[..., Any], spans: list[Span]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return method(*arguments)
        finally:
            spans.append((started, time.perf_counter()))

    return call


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="of run.py")
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    captures: list[Span] = []
    writes: list[Span] = []
    sizes = []
    ends = StepEnds()
    usual_write = Checkpoints._write

    def write(checkpoints: Checkpoints) -> None:
        step = checkpoints._copy.facts["step"]
        usual_write(checkpoints)
        folder = next(iter(checkpoints.root.glob(f"step-*{step}")))
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))

    common = [
        "model=resnet18",
        "workers=8",
        "tracker=none",
        "trainer.evaluate_every=1000",
        *options.overrides,
    ]
    with tempfile.TemporaryDirectory() as output:
        run_one([*common, f"trainer.steps={UNCOUNTED + 1}"], output)
        without = peak_mib()
        common += [f"trainer.steps={options.steps}", f"checkpoint.every_steps={EVERY}"]
        with (
            patch.object(TrainingState, "capture", timed(TrainingState.capture, captures)),
            patch.object(Checkpoints, "_write", timed(write, writes)),
        ):
            run_one(common, output, ends)
    quiet, slowed = [], []
    for start, end in ends.spans[UNCOUNTED:]:
        beside_write = any(start < ended and end > began for began, ended in writes)
        (slowed if beside_write else quiet).append(end - start)
    step = statistics.median(quiet)
    capture, writing = (statistics.mean(end - start for start, end in spans) for spans in (captures, writes))
    lost = capture + sum(seconds - step for seconds in slowed) / len(captures)
    print(head("Checkpoints", "python benchmarks/checkpoint.py"))
    print(columns(f"{len(captures)} checkpoints of {statistics.mean(sizes) / 2**20:.0f} MiB", ""))
    print(row("a step, quiet", f"{step:.3f} s"))
    print(row(f"a step beside a write, mean of {len(slowed)}", f"{statistics.mean(slowed or [step]):.3f} s"))
    print(row("capture", f"{capture:.3f} s"))
    print(row("write, beside the training", f"{writing:.3f} s"))
    print(row("lost to one checkpoint", f"{lost:.3f} s"))
    print(row("share of training at the default interval of 5 minutes", f"{lost / INTERVAL_SECONDS:.2%}"))
    print(row("largest resident memory without, with", f"{without:,.0f} MiB, {peak_mib():,.0f} MiB"))


if __name__ == "__main__":
    main()
