"""Memory: checks against the machine's size, reuse of freed memory by the process, and its exhaustion."""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameter numbers of glibc's mallopt
_LARGEST_ON_HEAP = 2**25  # bytes, the most that glibc allows
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Make glibc's malloc keep freed memory for the process; return whether it does.

    A step allocates its gradients and means again. If malloc returned them to the kernel in between, the
    kernel would zero each page again, which takes a quarter of a step of ResNet-18 on small images. The
    peak memory does not change. With other C libraries, nothing is done.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # Setting one threshold alone would fix the other one at its default, 128 kB.
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP) and mallopt(_TRIM_THRESHOLD, _NEVER))


def require_memory(num_bytes: int, what: str) -> None:
    """Raise ``ValueError`` if ``num_bytes`` is more than the machine's memory; ``what`` names their use."""
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > present:
        raise ValueError(
            f"{what} take {num_bytes / 2**30:.3g} GiB of memory, but this machine has "
            f"{present / 2**30:.3g} GiB: use fewer workers or a smaller model"
        )


@contextmanager
def exhaustion_in_one_line() -> Iterator[None]:
    """Context manager: convert the errors of NumPy, torch and CUDA for exhausted memory into ``OSError``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        words = ("can't allocate memory", "CUDA out of memory", "CUDA error: out of memory")
        if not (isinstance(error, MemoryError) or any(word in text for word in words)):
            raise
        advice = "use a smaller trainer.batch_size, fewer workers or a smaller model"
        size = re.search(r"to allocate ([\d.,]+ \w+)", text)
        found = f": {size[1]} are not free" if size else ""
        raise OSError(f"out of memory{found}; {advice}") from error
