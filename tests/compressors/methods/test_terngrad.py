"""TernGrad's scale of a layer whose entries have no spread."""

import torch

from compressors.api import Step
from compressors.terngrad import TernGrad


def test_a_layer_of_equal_entries_is_not_clipped_to_zero() -> None:
    x = torch.tensor([3.0, 3.0, 3.0, 7.0])
    payload = TernGrad(clip=2.5).encode(x.clone(), Step(0, 0, segment="a", shapes=((3,), (1,))))
    assert payload.scales.tolist() == [3.0, 7.0]
