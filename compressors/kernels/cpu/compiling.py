"""Compilation of loops: at the first call, with the GIL released, cached on disk, by one process for all."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.compiler_lock import global_compiler_lock

# "total_error._lab." where the packages have private names, else empty
_PREFIX = __name__.removesuffix("compressors.kernels.cpu.compiling")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the code next to its file or, if this is not writable, in the user's cache folder.

    Processes that share the cache compile a loop once: the others wait and load it. If no folder is writable,
    each process compiles again, which takes some seconds.
    """
    # The cached file's name contains the prefix, because cached code refers to its module by the full name
    function.__qualname__ = _PREFIX + function.__qualname__
    try:
        dispatcher = njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)
    compile_or_load, folder = dispatcher.compile, dispatcher.stats.cache_path
    assert folder is not None
    lock = Path(folder) / f"{function.__module__}.{function.__name__}.lock"

    def compile_once(signature: Any) -> Any:
        # A loop that calls another one compiles it meanwhile. Threads wait for numba's lock first, so each
        # process waits for one file at a time, in the order of the calls: processes cannot block each other.
        with global_compiler_lock, _locked(lock):
            return compile_or_load(signature)

    dispatcher.compile = compile_once  # type: ignore[method-assign, assignment] # numba has no hook before it
    return dispatcher


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, unless its folder or file system has none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError:
        yield
        return
    with file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
