"""Time to read a thousand run folders with a thousand logged steps, and to make tables of them.

    python benchmarks/results_reading.py [--runs N] [--steps N] [--in FOLDER]

Writes such folders, with as many metrics as a real step, reads them and writes both tables of `python -m
results table`. Prints the seconds, and for comparison those of json.loads for the lines of a tenth of the
folders.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from run_folders import write_run  # noqa: E402

from results.read.folders import read_runs  # noqa: E402
from results.tables.tidy import wide_table, write_long, write_table  # noqa: E402


def write_runs(folder: Path, runs: int, steps: int) -> None:
    """Write runs of Top-k with ten seeds per density; numbers have as many digits as real ones."""
    for number in range(runs):
        density = round(0.001 * 1.01 ** (number // 10), 9)
        lines = [record(number, step) for step in range(1, steps + 1)]
        settings = {"density": density}
        write_run(folder, compressor="top_k", seed=number % 10, settings=settings, records=lines)


def record(number: int, step: int) -> dict[str, float]:
    part = 1 / (7 + number + step)
    names = ("train/loss", "train/learning_rate", "compression/input_norm_squared", "compression/error")
    names += ("compression/total_error", "compression/density", "compression/density_mean")
    names += ("time/step_seconds", "time/gradient_seconds", "time/reduce_seconds", "time/update_seconds")
    totals = ("bytes_sent", "bytes_sent_total", "values_bytes_total", "indices_bytes_total")
    totals += ("padding_bytes_total", "metadata_bytes_total")
    return (
        {"step": step, "epoch": step / 157}
        | {name: part * (1 + i / 3) for i, name in enumerate(names)}
        | {f"comm/{name}": float(80 * step * i) for i, name in enumerate(totals, 1)}
    )


def seconds(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    found = work(*arguments)
    return time.perf_counter() - started, found


def only_json(folder: Path) -> None:
    for path in sorted(folder.glob("*/*/metrics.jsonl"))[::10]:
        for line in path.read_text(encoding="utf-8").splitlines():
            json.loads(line)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--in", dest="folder", type=Path, help="where folders are written, and left")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp())
    try:
        taken, _ = seconds(write_runs, folder / "runs", options.runs, options.steps)
        print(f"{options.runs} runs of {options.steps} steps written in {taken:.1f} s")
        reading, runs = seconds(read_runs, [folder / "runs"])
        assert len(runs) == options.runs and all(len(run.records) == options.steps for run in runs)
        print(f"read_runs                {reading:6.2f} s")
        for name, work in (
            ("wide table, csv", lambda: write_table(wide_table(runs), folder / "wide.csv")),
            ("wide table, parquet", lambda: write_table(wide_table(runs), folder / "wide.parquet")),
            ("long table, parquet", lambda: write_long(runs, folder / "long.parquet")),
            ("long table, csv", lambda: write_long(runs, folder / "long.csv")),
        ):
            print(f"{name:24s} {seconds(work)[0]:6.2f} s")
        alone, _ = seconds(only_json, folder / "runs")
        print(f"json.loads alone         {10 * alone:6.2f} s, {10 * alone / reading:.1f} x read_runs")
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
