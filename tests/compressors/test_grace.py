"""The adapter for GRACE's compressors: the contract, and a Top-k in GRACE's form against this project's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from methods import reduce_once
from torch import Tensor

from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.grace import Grace
from compressors.top_k import TopK
from contract.contract import Case, Contract


class TopKAsGraceHasIt:
    """The k largest magnitudes, as values and indices."""

    def __init__(self, share: float) -> None:
        self.share = share

    def compress(self, tensor: Tensor, name: str) -> tuple[list[Tensor], Any]:
        flat = tensor.flatten()
        _, indices = flat.abs().topk(max(1, int(flat.numel() * self.share)))
        return [flat[indices], indices], (flat.numel(), tensor.shape)

    def decompress(self, tensors: Sequence[Tensor], ctx: Any) -> Tensor:
        values, indices = tensors
        numel, shape = ctx
        return values.new_zeros(numel).scatter_(0, indices, values).view(shape)


@dataclass
class RandomSigns:
    """Random signs times the mean magnitude; a larger entry is positive with a higher probability."""

    def compress(self, tensor: Tensor, name: str) -> tuple[tuple[Tensor, Tensor], torch.Size]:
        largest = tensor.abs().max().clamp(min=torch.finfo(tensor.dtype).tiny)
        positive = torch.rand(tensor.shape).to(tensor) < 0.5 + 0.5 * tensor / largest
        return (positive, tensor.abs().mean().reshape(1)), tensor.shape

    def decompress(self, tensors: Sequence[Tensor], ctx: torch.Size) -> Tensor:
        positive, scale = tensors
        return ((2 * positive.to(scale.dtype) - 1) * scale).view(ctx)


class TestGrace(Contract):
    cases = (Case(Grace, {"compressor": RandomSigns()}),)


def test_their_top_k_gives_what_ours_gives() -> None:
    g = torch.randn(3, 200, generator=torch.Generator().manual_seed(0))
    theirs = build_reducer(Grace(compressor=TopKAsGraceHasIt(0.1)), 200, ErrorFeedback)
    ours = build_reducer(TopK(density=0.1), 200, ErrorFeedback)
    states: list[Any] = [None, None]
    for step in range(3):
        found = []
        for i, reducer in enumerate((theirs, ours)):
            reduced, states[i], communicator = reduce_once(reducer, g, states[i], step)
            found.append(reduced.mean["a"])
        torch.testing.assert_close(*found)
    charged = dict(zip(communicator.kinds, communicator.take_charges()[0], strict=True))
    assert charged["values"] == 20 * 4
    _, _, communicator = reduce_once(theirs, g)
    charged = dict(zip(communicator.kinds, communicator.take_charges()[0], strict=True))
    assert charged["message"] == 20 * (4 + 8)  # GRACE's indices are int64


def test_another_object_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Grace\.compressor must be an object with compress and decompress"):
        Grace(compressor=TopK(density=0.1))
