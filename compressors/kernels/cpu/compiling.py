"""Compilation of loops: at the first call, without Python's lock, cached on disk."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the code next to its file or, if that cannot be written to, in the user's cache folder.

    Where neither can be, each process compiles anew, which takes some seconds.
    """
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)
