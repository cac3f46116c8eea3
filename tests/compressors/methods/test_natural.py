"""Natural compression against its definition in NumPy, its variance and the ends of fp32's range."""

import numpy as np
import torch
from chances import bernstein, hoeffding

from compressors.api import Step
from compressors.natural import Natural

DRAWS = 40


def compressed(x: torch.Tensor, number: int = 0) -> np.ndarray:
    rest, sent = x.clone(), torch.zeros_like(x)
    payload = Natural().encode(rest, Step(0, number, segment="a"))
    Natural().add(payload, sent, Step(0, number, segment="a"))
    np.testing.assert_array_equal(rest.numpy(), x.numpy() - sent.numpy())
    assert sum(field.nbytes for field in payload) == len(x) + (len(x) + 7) // 8  # 9 bits
    return sent.numpy().astype(np.float64)


def neighbours(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The powers of two below and above |x|; x = 2^e m with 1 <= m < 2."""
    mantissa, exponent = np.frexp(np.abs(x))  # frexp's mantissa is in [0.5, 1)
    low = np.where(mantissa > 0, 2.0 ** (exponent - 1), 0)
    return low, 2 * low


def test_definition() -> None:
    """Entries of all mantissas are rounded up with probability (|x| - low) / low."""
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 1e-3
    wide = x.numpy().astype(np.float64)
    low, high = neighbours(wide)
    share = (np.abs(wide) - low) / low
    thirds = [share < 1 / 3, (share >= 1 / 3) & (share < 2 / 3), share >= 2 / 3]
    ups = np.zeros(5000)
    errors = 0.0
    for number in range(DRAWS):
        sent = compressed(x, number)
        up = np.abs(sent) == high
        assert (up | (np.abs(sent) == low)).all()
        assert (np.sign(sent) == np.sign(wide)).all()
        ups += up
        errors += ((sent - wide) ** 2).sum()
    for third in thirds:
        assert abs((ups - DRAWS * share)[third].sum()) < hoeffding(DRAWS * int(third.sum()))
    expected = (np.abs(wide) - low) * (high - np.abs(wide))
    assert expected.sum() <= (wide**2).sum() / 8
    spread = DRAWS * (high**4).sum()  # more than the variance of the sum of squared errors
    assert abs(errors - DRAWS * expected.sum()) < bernstein(spread, (high**2).max())


def test_the_ends_of_the_range() -> None:
    """Subnormal entries become 0 or 2^-126, unbiased; the largest stays finite; infinity and NaN remain."""
    tiny = torch.full((20000,), 2.0**-128)
    sent = compressed(tiny)
    assert set(sent.tolist()) == {0.0, 2.0**-126}
    assert abs((sent > 0).sum() - 5000) < hoeffding(20000)
    largest = torch.full((100,), torch.finfo(torch.float32).max)
    assert set(compressed(largest).tolist()) == {2.0**127}
    rest = torch.tensor([float("inf"), float("nan"), 1.0])
    Natural().encode(rest, Step(0, 0))
    assert not rest[:2].isfinite().any()
    assert rest[2] == 0
