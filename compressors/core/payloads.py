"""Payloads that sparsifiers share."""

from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.fields import INDICES, VALUES, Field, Joining


@Joining.register
class Sparse(NamedTuple):
    """Kept entries with their exact values and positions, of one worker or of several in a row."""

    values: Annotated[Tensor, Field(VALUES, 1)]  # [k]
    indices: Annotated[Tensor, Field(INDICES, 1)]  # [k] int32 (int64 beyond 2^31 elements), ascending

    def num_sent(self, size: int) -> int:
        return len(self.values)

    def add_to(self, out: Tensor) -> None:
        out.index_add_(0, self.indices, self.values.to(out.dtype))

    def positions(self, size: int) -> Tensor:
        return self.indices.long()


def take(x: Tensor, indices: Tensor) -> Sparse:
    """Move the entries of ``x`` [d] at ``indices`` [k] int64 into a payload, leaving zeros."""
    return Sparse(take_values(x, indices), indices.to(index_dtype(x.numel())))


def take_values(x: Tensor, indices: Tensor) -> Tensor:
    """Move the entries of ``x`` [d] at ``indices`` [k] int64 out of it, leaving zeros."""
    values = x.index_select(0, indices)
    x.index_fill_(0, indices, 0)
    return values


def divide(x: Tensor, divisor: float) -> Tensor:
    """``x`` [d] divided in place; numpy takes a fifth of the time that torch takes to start."""
    if numpy_knows(x) and x.is_contiguous():
        entries = x.numpy()
        entries /= entries.dtype.type(divisor)
        return x
    return x.div_(divisor)


def numpy_knows(x: Tensor) -> bool:
    """Whether ``x.numpy()`` can be had without a copy."""
    return x.is_cpu and x.dtype != torch.bfloat16


def as_indices(positions: np.ndarray, size: int, device: torch.device | str = "cpu") -> Tensor:
    """Positions [k] int64 as a payload on ``device`` has them; NumPy avoids torch's call overhead."""
    fits = index_dtype(size) == torch.int32
    indices = torch.from_numpy(positions.astype(np.int32 if fits else np.int64))
    return indices.to(device, non_blocking=True)  # for a GPU the host does not wait


def index_dtype(size: int) -> torch.dtype:
    """The smallest dtype that all positions in ``range(size)`` fit in: 4 bytes up to 2^31 elements."""
    return torch.int32 if size <= torch.iinfo(torch.int32).max else torch.int64
