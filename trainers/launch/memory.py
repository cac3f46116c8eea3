"""The machine's memory: checks against its size, and reuse of freed memory by the process."""

import ctypes
import os

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
