"""Random streams that are independent of the process that draws."""

import hashlib
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor


def derive_seed(*salt: int | str) -> int:
    """A 63-bit seed from any number of ints and strings, the same on every machine and process."""
    text = "\x1f".join(map(str, salt)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def generator(*salt: int | str) -> torch.Generator:
    """A CPU generator seeded with ``derive_seed(*salt)``: draws are equal on every device."""
    return torch.Generator().manual_seed(derive_seed(*salt))


@lru_cache(maxsize=4)  # workers with shared coordinates repeat a request; a chain makes several
def distinct_coordinates(seed: int, size: int, count: int) -> Tensor:
    """``count`` distinct coordinates of ``range(size)``, uniform over all subsets, ascending.

    Returns an int64 tensor ``[count]``. A small share of the coordinates is drawn with repetition, and the
    first distinct ones are kept, in O(count log count). A larger share consists of the positions of the
    smallest among ``size`` random numbers.
    """
    if count == size:
        return torch.arange(size)
    if 4 * count >= size:
        words = _random_words(seed, size)  # all different: SplitMix64 is a bijection
        return torch.from_numpy(np.flatnonzero(_are_smallest(words, count)))
    draws = count if count == 1 else count + count // 4 + 16
    while True:
        # 52 bits: the product stays below size also after rounding
        places = ((_random_words(seed, draws) >> np.uint64(12)) * (size / 2**52)).astype(np.int64)
        if draws > 1:
            # The order of the draws is in the low bits: NumPy 2.4 sorts numbers five times as fast as it
            # computes the stable order. 63 bits are enough for 2^33 elements, a quarter of them drawn.
            order_bits = draws.bit_length()
            keys = (places << order_bits) | np.arange(draws)
            keys.sort()
            places = keys >> order_bits
            is_first = np.concatenate([[True], places[1:] != places[:-1]])  # among equal coordinates
            places, drawn_at = places[is_first], keys[is_first] & ((1 << order_bits) - 1)
            if len(places) > count:
                places = places[_are_smallest(drawn_at, count)]
        if len(places) == count:
            return torch.from_numpy(places)
        draws *= 2


@lru_cache(maxsize=4)
def coordinates_on(seed: int, size: int, count: int, device: torch.device) -> Tensor:
    """``distinct_coordinates`` on ``device``."""
    if are_drawn_on(device, size, count):
        return draw_coordinates(seed, size, count, device)
    return distinct_coordinates(seed, size, count).to(device, non_blocking=True)


def are_drawn_on(device: torch.device, size: int, count: int) -> bool:
    """Whether coordinates are drawn on ``device``, as many are; a host takes 50 ms for a million."""
    return device.type != "cpu" and count >= MANY and 4 * count < size


def draw_coordinates(seed: int, size: int, count: int, device: torch.device) -> Tensor:
    """``distinct_coordinates`` by torch's operators; ``count`` must be at least ``MANY``, and below ``size``
    / 4."""
    draws = count + count // 4 + 16
    numbers = torch.arange(draws, device=device)
    word = (numbers + 1) * _signed(_STEP) + _signed(seed)  # the products are those of uint64
    for shift, factor in _MIX:
        word = (word ^ _shifted(word, shift)) * _signed(factor)
    word ^= _shifted(word, 31)
    places = (_shifted(word, 12).double() * (size / 2**52)).long()
    order_bits = draws.bit_length()
    keys = (places << order_bits | numbers).sort().values
    drawn_at = keys & ((1 << order_bits) - 1)
    places = keys >> order_bits
    is_first = torch.ones_like(places, dtype=torch.bool)  # among equal coordinates
    is_first[1:] = places[1:] != places[:-1]
    in_order = torch.zeros_like(is_first).scatter_(0, drawn_at, is_first)
    kept = is_first & (in_order.cumsum(0) <= count)[drawn_at]
    # The host does not wait for a count. Of at most a quarter of ``size``, ``draws`` have 7 % more distinct
    # coordinates than are wanted, which is fifty standard deviations of their number.
    return places[torch.nonzero_static(kept, size=count).squeeze(1)]


def _shifted(word: Tensor, bits: int) -> Tensor:
    """The logical shift of int64 to the right."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    """A 64-bit word as a signed number."""
    return word - 2**64 if word >= 2**63 else word


def _are_smallest(numbers: np.ndarray, count: int) -> np.ndarray:
    """Which of ``numbers`` [n], all different, are the ``count`` < n smallest, [n] bool."""
    return numbers < np.partition(numbers, count)[count]


def uniform(seed: int, size: int, dtype: torch.dtype) -> Tensor:
    """``size`` numbers in [0, 1) on the CPU: multiples of 2^-24 in float32, of 2^-32 in float64."""
    words = random_bits(seed, size)
    if dtype == torch.float64:
        return torch.from_numpy(words * np.float64(2**-32))
    return torch.from_numpy((words >> np.uint32(8)).astype(np.float32) * np.float32(2**-24))


def random_bits(seed: int, size: int) -> np.ndarray:
    """32 random bits per position, [size] uint32.

    Bits are a hash of the position: Wellons' lowbias32 (https://nullprogram.com/blog/2018/07/31/) with a key
    before each multiplication. It needs only 32-bit products, which SIMD units have, so kernels draw in
    registers.
    """
    first, second = hash_keys(seed)
    word = np.arange(size, dtype=np.uint32)
    word += first
    word ^= word >> np.uint32(16)
    word *= HASH_FACTORS[0]
    word ^= word >> np.uint32(15)
    word ^= second
    word *= HASH_FACTORS[1]
    word ^= word >> np.uint32(15)
    return word


def hash_keys(seed: int) -> tuple[np.uint32, np.uint32]:
    """The two keys of ``random_bits``; keys of any two seeds differ in about half of their bits."""
    mixed = _mixed((seed + _STEP) & _ALL_BITS)
    return np.uint32(mixed & 0xFFFFFFFF), np.uint32(mixed >> 32)


def _random_words(seed: int, count: int) -> np.ndarray:
    """SplitMix64 from ``seed``, [count] uint64. Steele, Lea and Flood, 2014, https://doi.org/10.1145/2660193.2660195."""
    if count == 1:  # Python integers take a tenth of the time
        return np.array([_mixed((seed + _STEP) & _ALL_BITS)], dtype=np.uint64)
    word = np.arange(1, count + 1, dtype=np.uint64)
    word *= _STEP_WORD
    word += np.uint64(seed)
    for shift, factor in _MIX_WORDS:
        word ^= word >> shift
        word *= factor
    word ^= word >> _LAST_SHIFT
    return word


MANY = 2**16  # coordinates that are drawn on their device
HASH_FACTORS = np.uint32(0x21F0AAAD), np.uint32(0x735A2D97)
_STEP, _ALL_BITS = 0x9E3779B97F4A7C15, 2**64 - 1
_MIX = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)
_STEP_WORD, _LAST_SHIFT = np.uint64(_STEP), np.uint64(31)
_MIX_WORDS = tuple((np.uint64(shift), np.uint64(factor)) for shift, factor in _MIX)


def _mixed(word: int) -> int:
    for shift, factor in _MIX:
        word = ((word ^ word >> shift) * factor) & _ALL_BITS
    return word ^ word >> 31
