"""Selection rules of sparsifiers and roundings of quantisers, as data for kernels.

A kernel can run a codec whose ``rule(size, step, workers)`` is not None. The rule describes the selection
from each worker's vector, for a segment of ``size`` elements and these workers. All rules of a method have
the same class. A quantiser has ``rounding(size, step)`` instead, for one vector.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor


class AtLeast(NamedTuple):
    """Entries of at least this magnitude, and NaN."""

    threshold: float | tuple[float, ...]  # of all workers, or one per worker


class SignsAtLeast(NamedTuple):
    """Signs of entries of at least this magnitude, decoded as sign times threshold: ``strom.py``."""

    threshold: float
    payload: Callable[[Tensor], tuple[Tensor, ...]]  # of words 2 index + (x < 0), int32, of all workers


class AtLeastSampled(NamedTuple):
    """Entries of at least a magnitude of a sample; if too many reach it, the largest: ``dgc.py``."""

    places: np.ndarray  # [W, m] int64, of the sample; [W, 0]: the sample is the whole vector
    rank: int  # of the sampled magnitude, counted from the largest one; 0: all entries are taken, also zeros
    most: float  # if more entries than this reach it, the largest are taken
    number: int  # of the largest entries that are then taken


class Largest(NamedTuple):
    """The largest magnitudes, equally many on every worker; ties go to the lowest index."""

    number: int


class Drawn(NamedTuple):
    """Entries at positions that do not depend on values."""

    # [R, k] int64, ascending, one row per worker or one for all; a tensor if they were drawn on a device
    positions: Any
    rotations: np.ndarray  # [R] int64, the j-th position's value goes to place (j + rotation) mod k
    payload: Callable[[Tensor, int], tuple[Tensor, ...]]  # of values [R k] of R workers, in order


Rule = AtLeast | AtLeastSampled | SignsAtLeast | Largest | Drawn


class Signs(NamedTuple):
    """Rounding to the sign times the mean magnitude of the layer: ``ef_sign.py``."""

    edges: np.ndarray  # [L + 1] int64


class Halves(NamedTuple):
    """Rounding to the mean of the entries >= 0, or of the others, of each of C columns: ``one_bit.py``."""

    edges: np.ndarray  # [C + 1] int64


class Ternary(NamedTuple):
    """Random rounding to -s, 0 or s, with s of each layer: ``terngrad.py``."""

    edges: np.ndarray  # [L + 1] int64
    clip: float | None
    values_per_byte: int
    seed: int


class Powers(NamedTuple):
    """Random rounding to powers of two: ``natural.py``."""

    seed: int


class Levels(NamedTuple):
    """Random rounding to levels of a bucket's norm: ``qsgd.py``."""

    number: int
    bits: int
    bucket_size: int
    norm: str
    seed: int


Rounding = Signs | Halves | Ternary | Powers | Levels
