"""Time until help is printed, and until the first step of a small model is on disk.

    python benchmarks/startup.py

Prints seconds from the start of the command: median and range of five runs each.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 5


def seconds_to_help() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "run.py", "--help"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def seconds_to_first_step() -> float:
    """Seconds until metrics.jsonl has its first record, with all defaults except the model."""
    output = Path(tempfile.mkdtemp())
    command = [sys.executable, "run.py", "model=mlp", "trainer.steps=2", f"output={output}"]
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while not any(path.stat().st_size for path in output.glob("*/*/metrics.jsonl")):
            if process.poll() not in (None, 0):
                raise RuntimeError("the run failed")
            time.sleep(0.005)
        return time.perf_counter() - started
    finally:
        process.wait()
        shutil.rmtree(output)


def main() -> None:
    for name, measure in (("--help", seconds_to_help), ("first step of model=mlp", seconds_to_first_step)):
        seconds = [measure() for _ in range(RUNS)]
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"{name:26s} {middle:5.2f} s  ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
