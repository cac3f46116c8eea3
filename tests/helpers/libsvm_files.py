"""Small files in LIBSVM's format."""

from pathlib import Path

import numpy as np


def write_rows(
    root: Path,
    name: str,
    rows: int,
    features: int,
    density: float = 1.0,
    labels: tuple = (-1, 1),
    seed: int = 0,
) -> Path:
    """Write random rows, with labels from a random linear model and noise; returns the file's path."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((rows, features)).round(3)
    table[rng.random(table.shape) > density] = 0
    table[0, -1] = 1.0  # so that the file determines the number of features
    is_high = table @ rng.standard_normal(features) + 2 * rng.standard_normal(rows) > 0
    lines = [
        " ".join([str(labels[int(high)]), *(f"{i + 1}:{v:g}" for i, v in enumerate(row) if v)])
        for high, row in zip(is_high, table, strict=True)
    ]
    path = root / "libsvm" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path
