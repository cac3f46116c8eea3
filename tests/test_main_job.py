"""The complete main job: its documented accuracy, density and time of compression."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_main_job_reaches_its_goals(tmp_path: Path) -> None:
    """At least 95 % accuracy, at most 3 % average density; compression takes no longer than the gradients."""
    command = [sys.executable, "run.py", "compressor=hard_threshold", "model=resnet18", f"output={tmp_path}"]
    subprocess.run([*command, "tracker=none"], cwd=ROOT, check=True, timeout=1200)
    (path,) = tmp_path.glob("*/*/summary.json")
    summary = json.loads(path.read_text())
    assert summary["test/accuracy"] >= 0.95
    assert summary["compression/density_mean"] <= 0.03
    lines = (path.parent / "metrics.jsonl").read_text().splitlines()
    steps = [record for record in map(json.loads, lines) if "train/loss" in record]
    reduce_seconds = statistics.median(record["time/reduce_seconds"] for record in steps)
    assert reduce_seconds <= statistics.median(record["time/gradient_seconds"] for record in steps)
