"""Random bits of quantisers: every bit is fair; positions and streams of different seeds are independent."""

import itertools
import math

import numpy as np
import torch
from chances import hoeffding

from compressors.core.randomness import (
    MANY,
    derive_seed,
    distinct_coordinates,
    draw_coordinates,
    random_bits,
    uniform,
)

SIZE = 20_000


def test_every_bit_is_fair_and_independent_of_the_next_place() -> None:
    words = random_bits(derive_seed("a"), SIZE)
    digits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert (np.abs(digits.sum(0) - SIZE / 2) < 1.2 * hoeffding(SIZE)).all()  # 1.2 allows for 32 comparisons
    for distance in (1, 2, 8, 512):
        same = (digits[distance:] == digits[:-distance]).sum(0)
        assert (np.abs(same - (SIZE - distance) / 2) < 1.2 * hoeffding(SIZE)).all()


def test_streams_are_independent() -> None:
    """Each pair of streams agrees in half of its leading bits, also if their seeds differ in one bit."""
    seeds = [0, 1, 2**31, 2**32, 2**62, *(derive_seed("own", 0, step, "a", 0) for step in range(6))]
    signs = [random_bits(seed, SIZE) >= 2**31 for seed in seeds]
    pairs = list(itertools.combinations(signs, 2))
    for one, other in pairs:
        for late in (0, 1, 7):
            same = (one[late:] == other[: SIZE - late]).sum()
            assert abs(same - (SIZE - late) / 2) < 1.2 * hoeffding(SIZE)


def test_uniform_numbers() -> None:
    for dtype, step in ((torch.float32, 2.0**-24), (torch.float64, 2.0**-32)):
        drawn = uniform(derive_seed("b"), SIZE, dtype)
        assert drawn.dtype == dtype
        assert drawn.min() >= 0 and drawn.max() < 1
        assert torch.equal((drawn / step).round() * step, drawn)
        counts = torch.histc(drawn.double(), 50, 0, 1)
        sigma = math.sqrt(SIZE / 50)
        assert (counts - SIZE / 50).abs().max() < 6 * sigma


def test_coordinates_drawn_on_a_device_are_those_of_the_host() -> None:
    for seed, size, count in ((1, 10**6, MANY), (2**63 - 5, 4 * MANY + 5, MANY), (7, 5 * 10**6, 10**6)):
        found = draw_coordinates(seed, size, count, torch.device("cpu"))
        assert torch.equal(found, distinct_coordinates(seed, size, count))
