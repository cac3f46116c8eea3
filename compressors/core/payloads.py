"""Payload class of the sparsifiers, and helpers for payloads."""

from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.checks import MethodError
from compressors.core.fields import INDICES, VALUES, Field, Joining


@Joining.register
class Sparse(NamedTuple):
    """Exact values and positions of selected entries, of one worker or of several in worker order."""

    values: Annotated[Tensor, Field(VALUES, 1)]  # [k]
    indices: Annotated[Tensor, Field(INDICES, 1)]  # [k] int32 (int64 beyond 2^31 elements), ascending

    def num_sent(self, size: int) -> int:
        return len(self.values)

    def add_to(self, out: Tensor) -> None:
        out.index_add_(0, self.indices, self.values.to(out.dtype))

    def positions(self, size: int) -> Tensor:
        return self.indices.long()


_UNSIGNED = {torch.int32: np.uint32, torch.int64: np.uint64}


def require_sparse(method: str, payload: object, x: Tensor) -> None:
    """Raise ``MethodError`` for a ``Sparse`` whose dtypes, lengths or positions do not fit ``x`` [d].

    Compiled loops get addresses and one dtype: they would read other numbers, or write outside of the vector.
    Positions are checked on a CPU only. A negative one is a large unsigned number, so one pass checks both
    ends.
    """
    if not isinstance(payload, Sparse):
        return
    values, indices = payload
    if values.dim() != 1 or indices.dim() != 1:
        shapes = f"{list(values.shape)} and {list(indices.shape)}"
        raise MethodError(f"{method}.encode must return vectors of values and positions, got {shapes}")
    if len(values) != len(indices):
        raise MethodError(f"{method}.encode returned {len(values)} values and {len(indices)} positions")
    if values.dtype != x.dtype:
        raise MethodError(f"{method}.encode must return {x.dtype} values, as its vector, got {values.dtype}")
    if indices.dtype != index_dtype(len(x)):
        rule = f"{index_dtype(len(x))} positions of {len(x)} elements"
        raise MethodError(f"{method}.encode must return {rule}, got {indices.dtype}")
    if not indices.is_cpu:
        return
    positions = indices.numpy().view(_UNSIGNED[indices.dtype])
    if len(positions) and positions.max() >= len(x):
        wrong = f"a position that is negative or lies beyond the last of {len(x)} elements"
        raise MethodError(f"{method}.encode returned {wrong}")


def take(x: Tensor, indices: Tensor) -> Sparse:
    """Move the entries of ``x`` [d] at ``indices`` [k] int64 into a payload and set them to zero in ``x``."""
    return Sparse(take_values(x, indices), indices.to(index_dtype(x.numel())))


def take_values(x: Tensor, indices: Tensor) -> Tensor:
    """Return the entries of ``x`` [d] at ``indices`` [k] int64 and set them to zero in ``x``."""
    values = x.index_select(0, indices)
    x.index_fill_(0, indices, 0)
    return values


def divide(x: Tensor, divisor: float) -> Tensor:
    """Divide ``x`` [d] in place; for short vectors NumPy takes a fifth of torch's call overhead."""
    if numpy_knows(x) and x.is_contiguous():
        entries = x.numpy()
        entries /= entries.dtype.type(divisor)
        return x
    return divide_all([x], divisor)[0] if x.is_cuda else x.div_(divisor)


def divide_all(tensors: list[Tensor], divisor: float) -> list[Tensor]:
    """Divide every tensor in place, with the bits of ``divide``; on a GPU by one launch for all."""
    # On a GPU ``x.div_`` multiplies by the rounded reciprocal (BinaryDivTrueKernel.cu), so its last bit can
    # differ from the CPU's; ``_foreach_div_`` divides.
    if tensors and all(x.is_cuda for x in tensors):
        torch._foreach_div_(tensors, float(divisor))
        return tensors
    return [divide(x, divisor) for x in tensors]


def numpy_knows(x: Tensor) -> bool:
    """Whether ``x.numpy()`` works without a copy."""
    return x.is_cpu and x.dtype != torch.bfloat16


def on_host(tensors: list[Tensor]) -> list[Tensor]:
    """Copies on the CPU of vectors in falling order of their item sizes, in one transfer."""
    whole = torch.cat([own.view(torch.uint8) for own in tensors]).cpu()
    parts = whole.split([own.nbytes for own in tensors])
    return [part.view(own.dtype) for part, own in zip(parts, tensors, strict=True)]


def as_indices(positions: np.ndarray, size: int, device: torch.device | str = "cpu") -> Tensor:
    """Positions [k] int64 in a payload's dtype on ``device``; NumPy avoids torch's call overhead."""
    fits = index_dtype(size) == torch.int32
    indices = torch.from_numpy(positions.astype(np.int32 if fits else np.int64))
    return indices.to(device, non_blocking=True)  # the host does not wait for a GPU


def index_dtype(size: int) -> torch.dtype:
    """The smallest dtype for all positions in ``range(size)``: 4 bytes up to 2^31 elements."""
    return torch.int32 if size <= torch.iinfo(torch.int32).max else torch.int64
