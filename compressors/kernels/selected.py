"""What kernels hand back."""

from typing import NamedTuple

import numpy as np
from torch import Tensor


class Selected(NamedTuple):
    """What was taken from one segment, and what stays."""

    values: Tensor  # [k], one worker after the other
    indices: Tensor | None  # [k] int32, ascending within a worker; None where they were drawn
    sent: np.ndarray  # [W, L] int64, elements taken per layer
    error: Tensor  # [W, L] float64, sum of squares of what stays
    input_norm: Tensor | None = None  # [W, L] float64, the same of all there was, if asked for
    room: Tensor | None = None  # [d] zeros for a mean, where the first worker's gradient was
