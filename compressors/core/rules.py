"""Selection rules of sparsifiers and roundings of quantisers, as data for kernels.

A kernel can run a codec whose ``rule(size, step, workers)`` is not None. The rule describes the selection
from each worker's vector, for a segment of ``size`` elements and these workers. All rules of a method are of
one class. A quantiser has a ``rounding(size, step)`` of one vector instead.
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


class Signs(NamedTuple):
    """Signs, with the mean magnitude of every layer, as ``ef_sign.py``."""

    edges: np.ndarray  # [L + 1] int64


class Ternary(NamedTuple):
    """-s, 0 or s at random, with s of every layer, as ``terngrad.py``."""

    edges: np.ndarray  # [L + 1] int64
    clip: float | None
    values_per_byte: int
    seed: int


class Powers(NamedTuple):
    """Powers of two at random, as ``natural.py``."""

    seed: int


class Levels(NamedTuple):
    """Levels of a bucket's norm at random, as ``qsgd.py``."""

    number: int
    bits: int
    bucket_size: int
    norm: str
    seed: int


Rounding = Signs | Ternary | Powers | Levels
