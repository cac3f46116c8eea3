"""Random streams that depend on what is drawn, never on which process draws it."""

import hashlib
from functools import lru_cache

import torch
from torch import Tensor


def derive_seed(*salt: int | str) -> int:
    """A 63-bit seed from any number of ints and strings, the same on every machine and process."""
    text = "\x1f".join(map(str, salt)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def generator(*salt: int | str) -> torch.Generator:
    """A CPU generator seeded with ``derive_seed(*salt)``: draws are equal on every device."""
    return torch.Generator().manual_seed(derive_seed(*salt))


@lru_cache(maxsize=1)  # workers that share coordinates ask for the same draw one after the other
def distinct_coordinates(seed: int, size: int, count: int) -> Tensor:
    """``count`` distinct coordinates of ``range(size)``, uniform over all subsets, ascending.

    Returns an int64 tensor ``[count]``. For a small share of the coordinates it draws with
    repetition and keeps a uniform subset of the distinct values, which by symmetry is a uniform
    subset of the range; the cost is then O(count log count) instead of O(size).
    """
    stream = torch.Generator().manual_seed(seed)
    if 4 * count >= size:
        return torch.randperm(size, generator=stream)[:count].sort().values
    draws = count
    while True:
        draws += count // 4 + 16  # at a share of 1/4, 1.25 count draws give count values on average
        distinct = torch.randint(size, (draws,), generator=stream).unique()
        if len(distinct) > count:
            kept = torch.randperm(len(distinct), generator=stream)[:count]
            return distinct[kept].sort().values
        if len(distinct) == count:
            return distinct
