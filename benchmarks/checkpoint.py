"""Cost of a checkpoint: ResNet-18 with 8 workers, the main job.

    python benchmarks/checkpoint.py [--steps 24] [KEY=VALUE ...]

A checkpoint is written every 8 steps. Copying the state stops the training (capture). A thread writes the
copy (write), which slows concurrent steps. The cost of a checkpoint is the capture plus the additional time
of these steps over the median of the others. It is divided by the default interval. The largest resident
memory of the process is printed without checkpoints, from a first run, and with checkpoints.
"""

import argparse
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from hydra import initialize_config_dir
from load import ROOT, run_one

sys.path.insert(0, str(ROOT))  # run.py is not in a package

EVERY = 8
UNCOUNTED = 2  # first steps, which are not timed
Span = tuple[float, float]


class StepEnds:
    """A tracker that records the time of each step."""

    def __init__(self) -> None:
        self.spans: list[Span] = []  # start and end of each step

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
    import trainers.run.trackers
    from trainers.checkpoint.saving import Checkpoints

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="of run.py")
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    captures, writes, sizes = [], [], []
    ends = StepEnds()
    trainers.run.trackers.Terminal = lambda num_steps: ends
    Checkpoints.save, usual_write = timed(Checkpoints.save, captures), Checkpoints._write

    def write(checkpoints: Checkpoints, snapshot: Any) -> None:
        usual_write(checkpoints, snapshot)
        folder = next(iter(checkpoints.root.glob(f"step-*{snapshot.facts['step']}")))
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))

    Checkpoints._write = timed(write, writes)
    common = [
        "model=resnet18",
        "workers=8",
        "tracker=none",
        "trainer.evaluate_every=1000",
        *options.overrides,
    ]
    output = tempfile.mkdtemp()
    try:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            run_one([*common, f"trainer.steps={UNCOUNTED + 1}"], output)
            without = peak_mib()
            ends.spans.clear()
            run_one([*common, f"trainer.steps={options.steps}", f"checkpoint.every_steps={EVERY}"], output)
    finally:
        shutil.rmtree(output)
    spans = ends.spans[UNCOUNTED:]
    met = [any(start < w[1] and end > w[0] for w in writes) for start, end in spans]
    quiet = statistics.median(end - start for (start, end), hit in zip(spans, met, strict=True) if not hit)
    slowed = [end - start for (start, end), hit in zip(spans, met, strict=True) if hit]
    capture = statistics.mean(end - start for start, end in captures)
    extra = sum(seconds - quiet for seconds in slowed) / len(captures)
    interval = 60 * 5  # conf/checkpoint/default.yaml
    print(
        f"{len(captures)} checkpoints of {statistics.mean(sizes) / 2**20:.0f} MiB, on {os.cpu_count()} cores"
    )
    print(f"| a step, quiet | {quiet:.3f} s |")
    print(f"| a step beside a write, mean of {len(slowed)} | {statistics.mean(slowed or [quiet]):.3f} s |")
    print(f"| capture | {capture:.3f} s |")
    print(f"| write, beside the training | {statistics.mean(end - start for start, end in writes):.3f} s |")
    print(f"| lost to one checkpoint | {capture + extra:.3f} s |")
    print(f"| share of training at the default interval of 5 minutes | {(capture + extra) / interval:.2%} |")
    print(f"| largest resident memory without, with | {without:,.0f} MiB, {peak_mib():,.0f} MiB |")


if __name__ == "__main__":
    main()
