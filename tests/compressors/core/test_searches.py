"""Positions of the largest magnitudes, also of vectors that are searched by way of a guess."""

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.parts.searches import positions_of_largest

SIZE = 2**16 + 321  # large enough for a guess
RNG = np.random.default_rng(0)
NORMAL = torch.from_numpy(RNG.standard_normal(SIZE))
VECTORS = {
    "normal": NORMAL.float(),
    "double": NORMAL,
    "half": NORMAL.half(),
    "bfloat16": NORMAL.bfloat16(),
    "ties": (3 * NORMAL).round().float(),
    "zeros": torch.zeros(SIZE),
    "sorted": NORMAL.float().sort().values,
    "nan": NORMAL.float().index_fill(0, torch.arange(0, SIZE, 30), torch.nan),
    "infinite": NORMAL.float().index_fill(0, torch.arange(0, SIZE, 30), -torch.inf),
    "strided": torch.stack([NORMAL, 2 * NORMAL], 1).float()[:, 1],
    # The sample holds each of the large entries, so the guess is too high for more than these
    "periodic": NORMAL.float().index_fill(0, torch.arange(0, SIZE, 4), 100.0),
    "short": NORMAL[:1000].float(),
}


@pytest.mark.parametrize("share", [1e-9, 0.001, 0.1, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("name", VECTORS)
def test_equals_a_stable_sort(name: str, share: float) -> None:
    x = VECTORS[name]
    k = max(1, int(share * len(x)))
    assert torch.equal(positions_of_largest(x, k), _first_of_sorted(x, k))


def _first_of_sorted(x: Tensor, k: int) -> Tensor:
    magnitudes = x.abs().double().nan_to_num(nan=torch.inf, posinf=1e300).numpy()  # NaN is above any number
    return torch.from_numpy(np.sort(np.argsort(-magnitudes, kind="stable")[:k]))
