"""1-bit SGD against its definition in NumPy."""

import numpy as np
import pytest
import torch

from compressors.api import Step
from compressors.one_bit import OneBit

SHAPES, EDGES = ((8, 30), (40,), (6, 2, 3, 3), (1,)), [240, 280, 388]
SIZE = 389
STEP = Step(0, 0, segment="a", shapes=SHAPES)


def drawn() -> torch.Tensor:
    x = torch.randn(SIZE, generator=torch.Generator().manual_seed(0)) ** 3
    x[:30] = x[:30].abs()  # a column without negative entries
    x[30:32] = 0.0
    return x


def definition(x: np.ndarray, columns: list[int]) -> np.ndarray:
    """For every entry the mean of its half of the column: the entries >= 0, or the negative ones."""
    found = []
    for layer, count in zip(np.split(x.astype(np.float64), EDGES), columns, strict=True):
        for column in layer.reshape(count, -1):
            above = column >= 0
            means = [column[half].mean() if half.any() else 0.0 for half in (above, ~above)]
            found.append(np.where(above, *means))
    return np.concatenate(found)


@pytest.mark.parametrize(("per", "columns"), [("column", [8, 1, 6, 1]), ("layer", [1, 1, 1, 1])])
def test_definition(per: str, columns: list[int]) -> None:
    x, codec = drawn(), OneBit(per=per)
    rest, sent = x.clone(), torch.zeros(SIZE)
    payload = codec.encode(rest, STEP)
    codec.add(payload, sent, STEP)
    np.testing.assert_allclose(sent.numpy(), definition(x.numpy(), columns), rtol=1e-6)
    np.testing.assert_array_equal(rest.numpy(), x.numpy() - sent.numpy())
    assert [field.nbytes for field in payload] == [-(-SIZE // 8), 8 * sum(columns)]


def test_settings() -> None:
    with pytest.raises(ValueError, match=r"OneBit\.per must be one of column, layer, got 'row'"):
        OneBit(per="row")
