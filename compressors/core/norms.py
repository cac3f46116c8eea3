"""Sums over vectors with the same bits from every backend."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def squared_norm(x: Tensor) -> Tensor:
    """||row||^2 over the last dimension: ``[..., d]`` to float64 ``[...]``.

    Squares are float64. A block has 256 entries; the last one is padded with zeros. Each block has 32 partial
    sums, of every 32nd entry, which are added pairwise by halves; the blocks' sums are then added in the same
    way. This order is part of the definition: the bits are the same for every number of threads and of rows,
    and in the kernels.
    """
    return _sum_of(x, Tensor.square_)


def absolute_sum(x: Tensor) -> Tensor:
    """||row||_1, in the order of ``squared_norm``."""
    return _sum_of(x, Tensor.abs_)


def wide_sum(x: Tensor) -> Tensor:
    """The sum of every row in float64, in the order of ``squared_norm``."""
    return _sum_of(x, lambda entries: entries)


def _sum_of(x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum of the float64 entries after ``change``, which works in place and keeps zeros."""
    size, blocks_at_once = x.shape[-1], 2**10  # squares stay in cache
    sums = [
        _sums_of_blocks(x[..., start : start + 256 * blocks_at_once], change)
        for start in range(0, max(1, size), 256 * blocks_at_once)
    ]
    return _add_halves(torch.cat(sums, -1) if len(sums) > 1 else sums[0])


def _sums_of_blocks(x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    entries = change(torch.nn.functional.pad(x.double(), (0, -x.shape[-1] % 256)))
    lines = entries.unflatten(-1, (-1, 8, 32)).unbind(-2)  # [..., blocks, 32] each
    total = lines[0].clone()
    for line in lines[1:]:
        total += line
    return _add_halves(total)


def _add_halves(sums: Tensor) -> Tensor:
    """The sum over the last dimension; ``sums`` is consumed."""
    if sums.shape[-1] == 0:
        return sums.sum(-1)
    while sums.shape[-1] > 1:
        half = (sums.shape[-1] + 1) // 2
        sums[..., : sums.shape[-1] - half] += sums[..., half:]
        sums = sums[..., :half]
    return sums[..., 0]


def layer_norms(rows: Tensor, edges: np.ndarray) -> Tensor:
    """``squared_norm`` of each layer of ``rows`` [W, d], which lie between ``edges`` [L + 1]: [W, L]."""
    return layer_sums(rows, edges, Tensor.square_)


def layer_sums(rows: Tensor, edges: np.ndarray, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The sums of each layer's entries after ``change``, in the order of ``squared_norm``: [W, L] float64.

    ``change`` works in place on float64 entries and keeps zeros.
    """
    layers = rows.split(np.diff(edges).tolist(), dim=1)
    return torch.stack([_sum_of(layer, change) for layer in layers], 1)
