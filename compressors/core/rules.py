"""Selection rules of sparsifiers, as data for kernels.

A kernel can run a codec whose ``rule(size, step, workers)`` is not None. The rule describes the selection
from each worker's vector, for a segment of ``size`` elements and these workers. All rules of a method are of
one class.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from torch import Tensor


class AtLeast(NamedTuple):
    """Entries of at least this magnitude, and NaN."""

    threshold: float | tuple[float, ...]  # of all workers, or one per worker


class Largest(NamedTuple):
    """The largest magnitudes, equally many on every worker; ties go to the lowest index."""

    number: int


class Drawn(NamedTuple):
    """Entries at positions that do not depend on values."""

    positions: np.ndarray  # [R, k] int64, ascending, one row per worker or one for all
    rotations: np.ndarray  # [R] int64, the j-th position's value goes to place (j + rotation) mod k
    payload: Callable[[Tensor, int], tuple[Tensor, ...]]  # of values [R k] of R workers, in order


Rule = AtLeast | Largest | Drawn
