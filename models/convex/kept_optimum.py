"""Cache on disk of a problem's L and x*, under a hash of the rows."""

import hashlib
import os
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from models.convex.optimum import LogisticObjective, is_optimum, largest_singular_value, minimise
from models.convex.problem import Constants

VERSION = 1  # version of the cached files; increase it when the computation of x* changes
SMOOTHNESS = {"madelon": 29790805.649335, "gisette_scale": 842.8680386}  # L in Sahu et al.'s released runs


def known_optimum(problem: Any, name: str, cache: Path, l2: float | None) -> Constants:
    """L, l2 (L / 10000 for None), x* and f* of all rows in ``problem``.

    A value from ``cache`` is used only if it is an optimum of this problem. Raises ``ValueError`` for a
    known ``name`` with another L, for an L that is 0 or not finite, and if there is no unique minimum.
    """
    rows, weights = as_numpy(problem.features), as_numpy(problem.weights)
    sigma = np.float64(largest_singular_value(rows))
    with np.errstate(over="ignore"):
        smoothness = float(sigma * sigma / (4 * len(weights)))
    if not 0 < smoothness < np.inf:
        what = "all zero: no model can be trained" if smoothness == 0 else "too large: L is not finite"
        raise ValueError(f"the features of {name} are {what}")
    expected = SMOOTHNESS.get(name)
    if expected is not None and abs(smoothness / expected - 1) > 1e-9:
        raise ValueError(
            f"these rows are not {name}'s: L is {smoothness:.9g}, that of {name} is {expected:.9g}"
        )
    regularisation = smoothness / 10000 if l2 is None else float(l2)
    objective = LogisticObjective(rows, weights, regularisation)
    path = cache / f"logistic-{_hash(rows, weights, l2)}.npz"
    x = _read(path, objective, smoothness)
    if x is None:
        try:
            x = minimise(objective, smoothness)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        _write(path, x)
    return Constants(smoothness, regularisation, x, objective.value(x))


def _read(path: Path, objective: LogisticObjective, smoothness: float) -> np.ndarray | None:
    """The x* cached at ``path``; None if the file is missing, damaged, or does not hold an optimum."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            x = np.asarray(kept["x"], dtype=np.float64)
    except (OSError, KeyError, ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None
    if x.shape != (objective.rows.shape[1],):
        return None
    return x if is_optimum(objective, x, smoothness) else None


def _write(path: Path, x: np.ndarray) -> None:
    partial = path.with_suffix(f".{os.getpid()}.npz")  # a crash while writing leaves no incomplete file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(partial, x=x)
        partial.replace(path)
    except OSError as error:
        print(f"note: x* was not saved for the next run: {error}", file=sys.stderr)


def _hash(rows: Any, weights: np.ndarray, l2: float | None) -> str:
    digest = hashlib.blake2b(f"{VERSION} {rows.shape} {l2!r}".encode(), digest_size=10)
    sparse = hasattr(rows, "indptr")
    parts = [rows.indptr, rows.indices, rows.data] if sparse else [rows]
    for part in [*parts, weights]:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def as_numpy(part: Any) -> Any:
    return part.cpu().numpy() if isinstance(part, Tensor) else part
