"""Descriptions of checkpoints' parts, as tests write them."""

import hashlib
import json
from pathlib import Path
from typing import Any


def replace_description(path: Path, **changes: object) -> None:
    """Change fields of a checkpoint's description and recompute its checksum."""
    line = json.dumps(json.loads(path.read_text().split("\n")[0]) | changes)
    path.write_text(f"{line}\n{hashlib.blake2b(line.encode()).hexdigest()}\n")


def facts_of(step: int, num_workers: int, **changes: Any) -> dict[str, Any]:
    """The ``facts`` in a checkpoint's description, of a run without skipped steps and without a search."""
    return {
        "step": step,
        "epoch": step / 10,
        "steps_in_ledger": step,
        "moved": 0,
        "skipped": 0,
        "skipped_in_a_row": 0,
        "last": {},
        "best": {},
        "search": {},
        "optimizer": {"dict": []},
        "average_period": None,
        "seconds": 1.5,
        "num_workers": num_workers,
        "records": [0, hashlib.blake2b().hexdigest()],
    } | changes
