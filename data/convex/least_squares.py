"""Synthetic linear regression: rows and targets drawn from a linear model with noise."""

from pathlib import Path

import torch
from scipy.sparse import csr_matrix

from data.checks import is_number, require_count, require_flag, require_memory, shown
from data.convex.rows import RowsDataset

PARTITIONS = ("iid", "contiguous")  # those that need no labels


def least_squares(
    *,
    rows: int,
    features: int,
    condition: float,
    noise: float,
    draw_seed: int,
    replacement: bool = False,
    partition: str = "iid",
) -> RowsDataset:
    """Targets b = A x + ``noise`` z, with x and z standard normal, [``rows``] and [``features``].

    A has standard normal entries. Its columns are scaled by factors from 1 down to ``condition`` ^ -1/2,
    equidistant in their logarithm, so that A^T A has about this condition number for many rows. The data
    depend on ``draw_seed``, not on the run's seed. Raises ``ValueError`` for invalid settings.
    """
    require_count("data.rows", rows, 1, 2**31)
    require_count("data.features", features, 1, 2**22)
    require_count("data.draw_seed", draw_seed, 0, 2**63 - 1)
    require_flag("data.replacement", replacement)
    require_memory("data.rows", rows, 32 * rows * features)
    for name, value, least in (("condition", condition, 1), ("noise", noise, 0)):
        if not (is_number(value) and value >= least):
            raise ValueError(f"data.{name} must be a finite number >= {least}, got {shown(value)}")
    if partition not in PARTITIONS:
        raise ValueError(f"data.partition must be one of {', '.join(PARTITIONS)}, got {shown(partition)}")
    generator = torch.Generator().manual_seed(draw_seed)
    table = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    table *= torch.logspace(0, -0.5, features, base=float(condition), dtype=torch.float64)
    x = torch.randn(features, generator=generator, dtype=torch.float64)
    targets = table @ x + noise * torch.randn(rows, generator=generator, dtype=torch.float64)
    return RowsDataset(
        name="least_squares",
        features=csr_matrix(table.numpy()),
        labels=torch.full((rows,), -1.0, dtype=torch.float64),
        label_values=(-1.0, 1.0),
        targets=targets,
        replacement=replacement,
        partition=partition,
        alpha=None,
        cache=Path(),
    )
