"""Time until help is printed, and until the first step of a small model is on disk.

    python benchmarks/startup.py [--rounds 5]

Prints seconds from the start of the command.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pages import columns, head, row

ROOT = Path(__file__).parent.parent


def seconds_to_help() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "run.py", "--help"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def seconds_to_first_step() -> float:
    """Seconds until metrics.jsonl has its first record, with all defaults except the model."""
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "run.py", "model=mlp", "trainer.steps=2", f"output={output}"]
        started = time.perf_counter()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            while not any(path.stat().st_size for path in Path(output).glob("*/*/metrics.jsonl")):
                if process.poll() not in (None, 0):
                    raise RuntimeError("the run failed")
                time.sleep(0.005)
            return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(head("Start", "python benchmarks/startup.py"))
    print(columns("until", "median, s", "range, s"))
    for name, measure in (("--help", seconds_to_help), ("first step of model=mlp", seconds_to_first_step)):
        seconds = [measure() for _ in range(options.rounds)]
        span = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(row(name, f"{statistics.median(seconds):.2f}", span))


if __name__ == "__main__":
    main()
