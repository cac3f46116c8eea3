"""run.py as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def command(
    *overrides: str, launcher: list[str] | None = None, **environment: str
) -> subprocess.CompletedProcess:
    """Run run.py as a user does."""
    clean = {k: v for k, v in os.environ.items() if k not in ("WANDB_MODE", "DATA_DIR")}
    return subprocess.run(
        [*(launcher or [sys.executable, "run.py"]), *overrides],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
