"""Payloads that would be written outside of a vector are refused before anything is sent or written."""

from dataclasses import dataclass

import pytest
import torch
from methods import segment
from torch import Tensor

from compressors.api import Codec, Sparse, Step, Traits, inputs_of
from compressors.build import build_reducer
from compressors.core.backends import chosen
from trainers.comm.communicator import Communicator

D, W = 50, 3


@dataclass(frozen=True, kw_only=True)
class Misplaced(Codec):
    """Sends two entries, of which the second worker's second one is at ``position``."""

    payload = Sparse
    position: int
    dtype: torch.dtype = torch.int32
    linear: bool = False

    @property
    def traits(self) -> Traits:
        return Traits(linear=self.linear)

    def encode(self, x: Tensor, step: Step) -> Sparse:
        place = self.position if step.worker == W - 2 else 1
        return Sparse(x[:2].clone(), torch.tensor([0, place], dtype=self.dtype))


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
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("position", [D, D + 7, -1])
def test_a_position_outside_is_refused(position: int, dtype: torch.dtype, linear: bool, kernels: str) -> None:
    codec = Misplaced(position=position, dtype=dtype, linear=linear)
    message = r"Misplaced\.encode returned a position that is negative or lies beyond the last of 50 elements"
    with chosen(kernels), pytest.raises(ValueError, match=message):
        reduce(codec)


def test_the_last_position_is_accepted() -> None:
    assert reduce(Misplaced(position=D - 1))["a"][-1] == pytest.approx(1 / 3)


def test_as_many_values_as_positions() -> None:
    with pytest.raises(ValueError, match=r"Longer\.encode returned 3 values and 2 positions"):
        reduce(Longer(position=1))
