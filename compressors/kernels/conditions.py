"""Conditions under which loops and kernels take over from the reference."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Codec, Compressed
from compressors.core.payloads import Sparse

DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}


def can_add(payload: Any, compressed: Compressed) -> bool:
    """Whether ``payload`` has values and indices and can be decoded without its codec."""
    if not isinstance(payload, Sparse):
        return False
    has_default_add = type(compressed.origin[0]).add is Codec.add
    return has_default_add and payload.values.dtype in DTYPES and payload.indices.dtype == torch.int32


def is_plain(rows: Tensor) -> bool:
    """Whether dtype and layout of ``rows`` [W, d] or a row [d] are supported."""
    return rows.dtype in DTYPES and (rows.stride(-1) == 1 or rows.shape[-1] == 1)
