"""Payloads and segments that compiled loops would take wrongly are refused; means are divided in place."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from methods import segment
from torch import Tensor

from compressors.api import Codec, Sparse, Step, Traits, inputs_of
from compressors.build import build_reducer
from compressors.core.payloads import divide_all
from compressors.kernels.choice import chosen
from trainers.comm.communicator import Communicator

D, W = 50, 3


@dataclass(frozen=True, kw_only=True)
class Wrong(Codec):
    """Sends what ``made`` returns for two values, two positions and the worker."""

    payload = Sparse
    made: Callable[[Tensor, Tensor, int], Any]
    linear: bool = False

    @property
    def traits(self) -> Traits:
        return Traits(linear=self.linear)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        return Sparse(*self.made(x[:2].clone(), torch.tensor([0, 1], dtype=torch.int32), step.worker))


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize("linear", [False, True], ids=["gathered", "reduced"])
@pytest.mark.parametrize(
    ("made", "said"),
    [
        *(
            (
                lambda v, i, w, at=at: (v, i if w != W - 2 else i * at),
                "a position that is negative or lies bey",
            )
            for at in (D, D + 7, -1)
        ),
        (lambda v, i, _: (v.double(), i), "torch.float32 values, as its vector, got torch.float64"),
        (lambda v, i, _: (v, i.float()), "torch.int32 positions of 50 elements, got torch.float32"),
        (lambda v, i, _: (v[:, None], i), "vectors of values and positions, got [2, 1] and [2]"),
        (lambda v, i, _: (1.0, i), "tensors, got float for Sparse.values"),
        (lambda v, i, _: (v.repeat(2)[:3], i), "3 values and 2 positions"),
    ],
    ids=["at the end", "beyond", "negative", "float64", "float positions", "matrix", "number", "longer"],
)
def test_what_would_be_written_elsewhere_is_refused(made: Any, said: str, linear: bool, kernels: str) -> None:
    segments = [segment(torch.ones(W, D), name) for name in "ab"]
    reducer = build_reducer(Wrong(made=made, linear=linear), D)
    refused = rf"^Wrong\.encode (must return|returned) {re.escape(said)}"
    with chosen(kernels), pytest.raises(ValueError, match=refused):
        reducer.reduce(inputs_of(segments), (), Step(0, 0), Communicator(W))


def test_segments_of_several_dtypes_are_refused_together() -> None:
    """Compiled loops would read the entries of one as those of the other, and write beyond its end."""
    segments = [segment(torch.zeros(1, 4, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    with pytest.raises(ValueError, match=r"must have one dtype, got float32 and float64$"):
        inputs_of(segments)


def test_several_means_are_divided_in_place_as_each_alone() -> None:
    for divisor in (1, 3, 7, 0.1):
        given = [torch.randn(size, generator=torch.Generator().manual_seed(size)) for size in (0, 1, 999)]
        expected = [x / divisor for x in given]
        assert all(map(torch.equal, divide_all(given, divisor), expected))
        assert all(map(torch.equal, given, expected))
