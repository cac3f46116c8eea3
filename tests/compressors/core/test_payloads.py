"""Payloads that would be written outside of a vector are refused before anything is sent or written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from methods import segment
from torch import Tensor

from compressors.api import Codec, Sparse, Step, Traits, inputs_of
from compressors.build import build_reducer
from compressors.kernels.choice import chosen
from trainers.comm.communicator import Communicator

D, W = 50, 3


@dataclass(frozen=True, kw_only=True)
class Misplaced(Codec):
    """Sends two entries, of which the second worker's second one is at ``position``."""

    payload = Sparse
    position: int
    linear: bool = False

    @property
    def traits(self) -> Traits:
        return Traits(linear=self.linear)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        place = self.position if step.worker == W - 2 else 1
        return Sparse(x[:2].clone(), torch.tensor([0, place], dtype=torch.int32))


class Longer(Misplaced):
    """More values than positions: a loop over values would read beyond the positions."""

    def encode(self, x: Tensor, step: Step) -> Sparse:
        return Sparse(x[:3].clone(), torch.tensor([0, 1], dtype=torch.int32))


def reduce(codec: Codec) -> dict[str, Tensor]:
    segments = [segment(torch.ones(W, D), name) for name in "ab"]
    communicator = Communicator(W)
    reduced, _ = build_reducer(codec, D).reduce(inputs_of(segments), (), Step(0, 0), communicator)
    return reduced.mean


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize("linear", [False, True], ids=["gathered", "reduced"])
@pytest.mark.parametrize("position", [D, D + 7, -1])
def test_a_position_outside_is_refused(position: int, linear: bool, kernels: str) -> None:
    codec = Misplaced(position=position, linear=linear)
    message = r"Misplaced\.encode returned a position that is negative or lies beyond the last of 50 elements"
    with chosen(kernels), pytest.raises(ValueError, match=message):
        reduce(codec)


@dataclass(frozen=True, kw_only=True)
class Wrong(Misplaced):
    """Sends ``made`` of two values and two positions."""

    made: Callable[[Tensor, Tensor], Any]

    def encode(self, x: Tensor, step: Step) -> Sparse:
        return Sparse(*self.made(x[:2].clone(), torch.tensor([0, 1], dtype=torch.int32)))


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda v, i: (v.double(), i), r"torch\.float32 values, as its vector, got torch\.float64"),
        (lambda v, i: (v, i.float()), r"torch\.int32 positions of 50 elements, got torch\.float32"),
        (lambda v, i: (v[:, None], i), r"vectors of values and positions, got \[2, 1\] and \[2\]"),
        (lambda v, i: (1.0, i), r"tensors, got float for Sparse\.values"),
    ],
    ids=["float64", "float positions", "matrix", "number"],
)
def test_other_tensors_than_those_of_the_vector_are_refused(made: Any, said: str, kernels: str) -> None:
    with chosen(kernels), pytest.raises(ValueError, match=rf"Wrong\.encode must return {said}$"):
        reduce(Wrong(position=1, made=made))


def test_as_many_values_as_positions() -> None:
    with pytest.raises(ValueError, match=r"Longer\.encode returned 3 values and 2 positions"):
        reduce(Longer(position=1))
