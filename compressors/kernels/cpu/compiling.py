"""Compilation of loops: at the first call, with the GIL released, cached on disk."""

from collections.abc import Callable
from typing import Any

from numba import njit

# "total_error._lab." where the packages have private names, else empty
_PREFIX = __name__.removesuffix("compressors.kernels.cpu.compiling")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the code next to its file or, if this is not writable, in the user's cache folder.

    If neither is writable, each process compiles again, which takes some seconds.
    """
    # The cached file's name contains the prefix, because cached code refers to its module by the full name
    function.__qualname__ = _PREFIX + function.__qualname__
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)
