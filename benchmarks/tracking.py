"""Cost of trackers: time per record, and what a failing W&B server changes.

    python benchmarks/tracking.py [--records 500] [--keys 30]

A record is handed to each tracker between two steps, so its time is added to the step. The table has the
processor time and the median wall time of a record in the training process, for W&B offline, online, and with
servers that answer 500, that do not answer, and that have gone. The server and W&B's own process run on the
same machine, so the wall time includes their work; the processor time does not.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

FAULTS = ("answers", "answers 500", "does not answer", "has gone")
UPLOAD_SECONDS = 2.0  # time limit of the upload at the end, which is not measured


def record(step: int, num_keys: int) -> dict[str, float]:
    found = {f"group/metric_{i}": step / (i + 1) for i in range(num_keys)}
    return {"step": step, "epoch": step / 100, **found}


def measure(tracker: Any, num_records: int, num_keys: int, fault: Any = None) -> tuple[float, float]:
    """Processor time and median wall time of a record in seconds; ``fault`` begins after a tenth of them."""
    tracker.log(record(1, num_keys))
    walls: list[float] = []
    processor = 0.0
    for step in range(2, num_records + 2):
        if fault is not None and step == num_records // 10:
            fault()
        given = record(step, num_keys)
        started, began = time.perf_counter(), time.thread_time()
        tracker.log(given)
        processor += time.thread_time() - began
        walls.append(time.perf_counter() - started)
    return processor / num_records, statistics.median(walls)


def cases(folder: Path, num_records: int, num_keys: int) -> Iterator[tuple[str, float, float]]:
    from wandb_server import Answer, WandbServer

    from trainers.run import wandb_tracker
    from trainers.run.trackers import open_trackers

    wandb_tracker._UPLOAD_SECONDS = UPLOAD_SECONDS

    def opened(kind: str, name: str, **settings: object) -> Any:
        place = folder / name.replace(" ", "-")
        place.mkdir()
        facts = {"group": "g"}
        destinations = {kind: "required"}
        with redirect_stdout(StringIO()):
            return open_trackers(
                folder=place, name=name, config={}, facts=facts, destinations=destinations, **settings
            )[0]

    if find_spec("tensorboard") is not None:
        tracker = opened("tensorboard", "tensorboard")
        yield "tensorboard", *measure(tracker, num_records, num_keys)
        tracker.finish({})
    tracker = opened("wandb", "offline", mode="offline")
    yield "wandb, offline", *measure(tracker, num_records, num_keys)
    tracker.finish({})
    server = WandbServer()
    os.environ.update(server.environment)
    for what in FAULTS:
        answer = {"answers 500": Answer(500), "does not answer": Answer(hang_seconds=60)}.get(what)
        tracker = opened("wandb", what, mode="online")

        def begin(what: str = what, answer: Any = answer) -> None:
            if what == "has gone":
                server.close()
            elif answer is not None:
                server.fault = lambda *_: answer

        yield f"wandb, online, the server {what}", *measure(tracker, num_records, num_keys, begin)
        tracker.finish(None)
        server.fault = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--keys", type=int, default=30)
    options = parser.parse_args()
    print("| tracker | processor, ms/record | median wall, ms/record |")
    print("|---|---:|---:|")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(redirect_stderr(StringIO()))  # W&B prints the faults there
        for name, processor, wall in cases(folder, options.records, options.keys):
            print(f"| {name} | {1e3 * processor:.3f} | {1e3 * wall:.3f} |", flush=True)


if __name__ == "__main__":
    main()
