"""Encoded changes of words: exact round trips, bytes, and refusal of damaged messages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.encoding import changes
from compressors.encoding.changes import apply_changes, write_changes
from compressors.encoding.index_codes import BadMessageError, IndexCodes
from compressors.kernels.cpu.index_codes import CompiledIndexCodes

BOTH = [CompiledIndexCodes(), IndexCodes()]
DTYPES = [np.int8, np.int16, np.int32]


def pair(dtype: type, size: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Words with any bits, and others with a ``share`` of them drawn anew."""
    stream = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    old, drawn = stream.integers(limits.min, limits.max, (2, size), dtype, endpoint=True)
    return old, np.where(stream.random(size) < share, drawn, old)


@given(st.sampled_from(DTYPES), st.integers(0, 500), st.sampled_from([0, 0.01, 0.5, 1]), st.integers(0, 99))
@settings(deadline=None, max_examples=150)
def test_there_and_back(dtype: type, size: int, share: float, seed: int) -> None:
    """In chunks of 100 words; the reference writes and reads the bytes of the compiled loops."""
    old, new = pair(dtype, size, share, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "CHUNK", 100)
        (message, changed), (same, _) = (write_changes(old, new, codes) for codes in BOTH)
        assert changed == (old != new).sum() and np.array_equal(message, same)
        for codes in BOTH:
            words = old.copy()
            apply_changes(message, words, codes)
            assert np.array_equal(words, new)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_steps(dtype: type) -> None:
    ends = np.array([np.iinfo(dtype).min, -1, 0, 1, np.iinfo(dtype).max], dtype=dtype)
    old, new = ends.repeat(len(ends)), np.tile(ends, len(ends))
    words = old.copy()
    apply_changes(write_changes(old, new, BOTH[0])[0], words, BOTH[0])
    assert np.array_equal(words, new)


def test_a_step_of_one_takes_two_bits_beside_its_position() -> None:
    stream = np.random.default_rng(0)
    old = stream.integers(-1000, 1000, 100_000, np.int16)
    where = stream.random(len(old)) < 0.01
    new = np.where(where, old + stream.choice([-1, 1], len(old)), old).astype(np.int16)
    message, changed = write_changes(old, new, BOTH[0])
    entropy = -(0.01 * np.log2(0.01) + 0.99 * np.log2(0.99)) / 0.01
    assert 8 * len(message) < changed * (entropy + 2)


def test_damaged_messages_are_refused_or_are_other_changes() -> None:
    """No byte makes a reader write outside of the words or raise another error."""
    old, new = pair(np.int16, 3000, 0.1)
    message, _ = write_changes(old, new, BOTH[0])
    stream, refused = np.random.default_rng(0), 0
    for codes in BOTH * 150:
        damaged = message.copy()
        damaged[stream.integers(0, min(len(message), stream.choice([5, 80, 4000])))] ^= 1 << stream.integers(
            0, 8
        )
        damaged = damaged[: stream.integers(1, len(message)) if stream.random() < 0.3 else None]
        try:
            apply_changes(damaged, old.copy(), codes)
        except BadMessageError:
            refused += 1
    assert refused > 100
    with pytest.raises(BadMessageError, match=r"1 bytes after its end"):
        apply_changes(np.append(message, np.uint8(0)), old.copy(), BOTH[0])
    with pytest.raises(BadMessageError, match=r"announces 127 of 5 words"):
        apply_changes(np.array([0, 127], dtype=np.uint8), np.zeros(5, dtype=np.int16), BOTH[0])
