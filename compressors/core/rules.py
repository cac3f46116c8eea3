"""Selection rules of sparsifiers, as data that kernels understand.

A codec whose ``rule(size, step, workers)`` says more than None can be run by a kernel: for ``size`` elements
of a segment and these workers it is what is kept of each worker's vector. One method has rules of one kind.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from torch import Tensor


class AtLeast(NamedTuple):
    """Entries of at least this magnitude, and NaN."""

    threshold: float | tuple[float, ...]  # of all workers, or of each in turn


class Largest(NamedTuple):
    """The largest magnitudes, as many on every worker; among equal ones those of the lowest index."""

    number: int


class Drawn(NamedTuple):
    """Entries at positions that do not depend on values."""

    positions: np.ndarray  # [R, k] int64, ascending, one row for each worker or one for all
    rotations: np.ndarray  # [R] int64, the j-th position's value goes to place (j + rotation) mod k
    payload: Callable[
        [Tensor, int], tuple[Tensor, ...]
    ]  # values [R k] of R workers, one after the other, to their payload


Rule = AtLeast | Largest | Drawn
