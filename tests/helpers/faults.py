"""Settings of the runs in fault tests, and results of runs without a fault."""

from pathlib import Path
from typing import Any

from command_line import command
from interrupting import left_behind

STEPS = 640
SMALL = ["model=mlp", "model.hidden=[16]", "workers=4", "trainer.batch_size=8", "tracker=none"]
SMALL += ["optimizer=adam", "optimizer.lr=0.001", "trainer.average_reset_epochs=1"]
SMALL += ["checkpoint.every_steps=10", "checkpoint.at_end=true"]
METHODS = {"gathered": "compressor=top_k", "reduced": "compressor=random_k"}
LONG = [f"trainer.steps={STEPS}"]


def uninterrupted(folder: Path, *overrides: str) -> dict[str, Any]:
    result = command(*overrides, f"output={folder}")
    assert result.returncode == 0, result.stderr
    return left_behind(folder)
