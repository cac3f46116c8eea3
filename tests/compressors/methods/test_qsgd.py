"""QSGD against its definition in NumPy: levels, bounds, packed bits, Elias' code, refusals."""

import math
import re

import numpy as np
import pytest
import torch
from chances import bernstein
from methods import named, plan

from compressors.api import Step
from compressors.build import build_reducer
from compressors.encoding.elias import dense_bits, omega_bits, sparse_bits
from compressors.encoding.packing import join_bits, split_bits, widths_of
from compressors.qsgd import QSGD

DRAWS = 16
STEP = Step(0, 0, segment="a")
SETTINGS = [  # (settings, bits of an entry)
    ({"bits": 4}, 4),
    ({"bits": None, "levels": 1, "norm": "l2"}, 2),
    ({"bits": None, "levels": 5, "bucket_size": 64}, 4),
    ({"bits": None, "levels": 16, "norm": "l2", "bucket_size": 256}, 6),
    ({"bits": 9, "levels": 200, "bucket_size": 1000}, 9),
]


def sent_by(codec: QSGD, x: torch.Tensor, number: int = 0) -> np.ndarray:
    step = STEP._replace(number=number)
    rest, sent = x.clone(), torch.zeros_like(x)
    payload = codec.encode(rest, step)
    codec.add(payload, sent, step)
    np.testing.assert_array_equal(rest.numpy(), x.numpy() - sent.numpy())
    return sent.numpy().astype(np.float64)


@pytest.mark.parametrize(("settings", "bits"), SETTINGS)
def test_definition(settings: dict, bits: int) -> None:
    """norm sign(x) l / s, with l the floor of s |x| / norm, or one more with the fraction's probability."""
    codec = QSGD(**settings)
    s, d = codec.num_levels, codec.bucket_size
    x = torch.randn(3000, generator=torch.Generator().manual_seed(0)) ** 3
    buckets = [x.numpy()[i : i + d].astype(np.float64) for i in range(0, 3000, d)]
    norms = [np.abs(b).max() if codec.norm == "max" else np.linalg.norm(b) for b in buckets]
    wide = np.concatenate(buckets)
    norm = np.concatenate([np.full(len(b), n) for b, n in zip(buckets, norms, strict=True)])
    shares = s * np.abs(wide) / norm
    fraction = shares - np.floor(shares)
    total, errors = np.zeros(3000), 0.0
    for number in range(DRAWS):
        sent = sent_by(codec, x, number)
        levels = np.abs(sent) * s / norm
        np.testing.assert_allclose(levels, levels.round(), atol=1e-4)
        assert (np.abs(levels.round() - shares) < 1 + 1e-4).all()
        assert (sent * wide >= 0).all()
        total += sent
        errors += ((sent - wide) ** 2).sum()
    variances = (norm / s) ** 2 * fraction * (1 - fraction)
    distance = abs((np.sign(wide) * (total - DRAWS * wide)).sum())
    assert distance < bernstein(DRAWS * variances.sum(), (norm / s).max()) + 1e-5 * np.abs(wide).sum()
    squares = (norm / s) ** 4
    assert abs(errors - DRAWS * variances.sum()) < bernstein(DRAWS * squares.sum(), (norm / s).max() ** 2)
    bounds = [codec.variance_bound(len(b), Step(0, 0)) * (b**2).sum() for b in buckets]
    assert variances.sum() <= sum(bounds)
    payload = codec.encode(x.clone(), STEP)
    assert sum(field.nbytes for field in payload[:-1]) == 3000 * bits / 8
    assert payload.norms.nbytes == 4 * len(buckets)


@pytest.mark.parametrize("bits", range(2, 16))
def test_codes_of_any_width(bits: int) -> None:
    codes = torch.randint(0, 2**bits, (1001,), generator=torch.Generator().manual_seed(0), dtype=torch.int16)
    packed = split_bits(codes, bits)
    assert sum(widths_of(bits)) == bits
    assert [part.numel() for part in packed] == [math.ceil(1001 * width / 8) for width in widths_of(bits)]
    assert torch.equal(join_bits(packed, bits, 1001), codes)


def omega(number: int) -> str:
    """Elias' omega code as a string of 0 and 1."""
    code = "0"
    while number > 1:
        digits = f"{number:b}"
        code, number = digits + code, len(digits) - 1
    return code


def read_omega(bits: str, at: int) -> tuple[int, int]:
    number = 1
    while bits[at] == "1":
        end = at + number + 1
        number, at = int(bits[at:end], 2), end
    return number, at + 1


def test_lengths_are_those_of_elias_code() -> None:
    numbers = [*range(1, 70), 127, 128, 1000, 2**16, 2**40 + 1]
    assert omega_bits(torch.tensor(numbers)).tolist() == [len(omega(number)) for number in numbers]
    levels = torch.tensor([0, 3, 0, 0, 1, 2, 0])
    signs = "+-0"
    sparse = "".join(omega(gap) + signs[0] + omega(level) for gap, level in ((2, 3), (3, 1), (1, 2)))
    assert sparse_bits(levels) == 32 + len(sparse)
    dense = "".join(omega(level + 1) + signs[1] * (level > 0) for level in levels.tolist())
    assert dense_bits(levels) == 32 + len(dense)
    message, at, found = "".join(map(omega, numbers)), 0, []
    while at < len(message):
        number, at = read_omega(message, at)
        found.append(number)
    assert found == numbers


def test_feedback_is_refused_unless_the_variance_is_small() -> None:
    refused = r"feedback must be none, got ErrorFeedback: QSGD's variance of up to 1\.19 \|\|x\|\|\^2"
    with pytest.raises(ValueError, match=refused):
        QSGD().check(plan())
    QSGD().check(plan(feedback="", needs_contraction=False))
    QSGD(bucket_size=256).check(plan())
    QSGD(bits=8).check(plan())
    with pytest.raises(ValueError, match=r"up to 22\.6 \|\|x\|\|"):
        QSGD(bits=2, norm="l2").check(plan())
    for parts in ("chain", "two_way"):  # their residuals are those of both parts together
        build_reducer(named(parts, {}).method(), 1000).check(plan())


def test_settings() -> None:
    for settings, said in (
        ({"bits": 1}, "QSGD.bits must be from 2 to 15, or null for the fewest, got 1"),
        ({"bits": 16}, "QSGD.bits must be from 2 to 15, or null for the fewest, got 16"),
        ({"bits": None}, "QSGD.levels must be an integer >= 1 if QSGD.bits is null, got None"),
        ({"bits": 4, "levels": 8}, "QSGD.levels must be at most 7, which 4 bits hold with a sign, got 8"),
        ({"levels": 0}, "QSGD.levels must be an integer >= 1, or null for as many as bits hold, got 0"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            QSGD(**settings)
