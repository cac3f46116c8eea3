"""Codes of positions (Rice, bitmap): round trips, sizes, refused bytes; kernels equal the reference."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compressors.encoding.index_codes import BLOCK, BadMessageError, IndexCodes, low_bytes
from compressors.kernels.cpu.index_codes import CompiledIndexCodes

KERNELS = CompiledIndexCodes()
BOTH = [IndexCodes(), KERNELS]
both = pytest.mark.parametrize("codes", BOTH, ids=["reference", "kernels"])


def chosen(size: int, k: int, seed: int) -> np.ndarray:
    """At most about 1.5 k ascending positions in ``range(size)``, some of them consecutive."""
    stream = np.random.default_rng(seed)
    scattered = np.unique(stream.integers(0, size, k))
    start = int(stream.integers(0, size))
    return np.union1d(scattered, np.arange(start, min(size, start + k // 2)))


def rice_of(codes: IndexCodes, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    widths, unary_bytes = codes.widths(positions)
    low, unary = codes.rice(positions, widths, unary_bytes)
    assert len(unary) == unary_bytes
    assert len(low) == low_bytes(widths, len(positions))
    return widths, low, unary


@given(st.integers(1, 2**34), st.integers(0, 700), st.integers(0, 2**32))
@example(1, 1, 0)
@example(2**31 + 9, 1, 0)
@example(5, 40, 0)
@settings(deadline=None, max_examples=200)
def test_rice_there_and_back(size: int, k: int, seed: int) -> None:
    positions = chosen(size, k, seed) if k else np.empty(0, dtype=np.int64)
    written = [rice_of(codes, positions) for codes in BOTH]
    for one, other in zip(*written, strict=True):
        assert np.array_equal(one, other)
    widths, low, unary = written[0]
    for codes in BOTH:
        assert np.array_equal(codes.unrice(low, unary, widths, len(positions), size), positions)


@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(0, 2**32))
@settings(deadline=None, max_examples=100)
def test_bitmap_there_and_back(size: int, k: int, seed: int) -> None:
    positions = chosen(size, k, seed) if k else np.empty(0, dtype=np.int64)
    packed = [codes.bitmap(positions, size) for codes in BOTH]
    assert np.array_equal(*packed)
    assert len(packed[0]) == -(-size // 8)
    for codes in BOTH:
        assert np.array_equal(codes.unbitmap(packed[0], len(positions), size), positions)


@both
@pytest.mark.parametrize(
    "positions",
    [[], [0], [6], list(range(7)), list(range(1000)), [2**31, 2**31 + 1, 2**33], [0, 2**40]],
    ids=["none", "first", "last", "all", "a run of blocks", "beyond 2^31", "far apart"],
)
def test_ends_and_runs(codes: IndexCodes, positions: list[int]) -> None:
    wanted = np.array(positions, dtype=np.int64)
    size = positions[-1] + 1 if positions else 7
    widths, low, unary = rice_of(codes, wanted)
    assert np.array_equal(codes.unrice(low, unary, widths, len(wanted), size), wanted)


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1])
def test_rice_is_near_the_entropy(density: float) -> None:
    size = 2_000_000
    k = int(size * density)
    positions = np.sort(np.random.default_rng(0).choice(size, k, replace=False))
    taken = 8 * sum(part.nbytes for part in rice_of(KERNELS, positions)) / k
    nats = math.lgamma(size + 1) - math.lgamma(k + 1) - math.lgamma(size - k + 1)
    entropy = nats / math.log(2) / k
    assert entropy < taken < entropy + 0.3


def test_layers_of_other_densities_take_what_they_take_alone() -> None:
    """Every block has its own width, so a dense layer beside a sparse one adds at most 8 bytes."""
    stream = np.random.default_rng(0)
    dense = np.sort(stream.choice(10**6, 20 * BLOCK, replace=False))
    sparse = np.sort(stream.choice(10**9, 20 * BLOCK, replace=False))
    alone = sum(part.nbytes for positions in (dense, sparse) for part in rice_of(KERNELS, positions))
    together = sum(part.nbytes for part in rice_of(KERNELS, np.concatenate([dense, sparse + 10**6])))
    assert together <= alone + 8


@both
def test_what_no_encoder_has_written_is_refused(codes: IndexCodes) -> None:
    positions = np.array([3, 500, 501, 990])
    widths, low, unary = rice_of(codes, positions)
    assert np.array_equal(codes.unrice(low, unary, widths, 4, 991), positions)
    more = unary | 0x55
    for bad, reason in [
        (lambda: codes.unrice(low, unary, widths, 3, 991), "differs from the number of entries"),
        (lambda: codes.unrice(low, unary, widths, 5, 991), "differs from the number of entries"),
        (lambda: codes.unrice(low, np.append(unary, 0).astype(np.uint8), widths, 4, 991), "differs from"),
        (lambda: codes.unrice(low, unary, widths, 4, 990), "beyond the last element"),
        (lambda: codes.unrice(low, more.astype(np.uint8), widths, 4, 991), "differs from|beyond|unused"),
        (lambda: codes.unbitmap(codes.bitmap(positions, 991), 5, 991), "marks 4 entries, 5 were announced"),
        (lambda: codes.unbitmap(codes.bitmap(positions, 991), 4, 990), "beyond the last element"),
    ]:
        with pytest.raises(BadMessageError, match=reason):
            bad()
