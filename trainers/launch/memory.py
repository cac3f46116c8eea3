"""The machine's memory: its size, and the setting that keeps freed memory with the process."""

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers of what mallopt sets
_LARGEST_ON_HEAP = 2**25  # bytes, the most that glibc allows
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Have glibc's malloc keep what is freed instead of handing it back to the kernel; whether it does.

    A step allocates its gradients and means anew. Handed back and asked for again, each page of them is
    zeroed by the kernel first, which takes a quarter of a step of ResNet-18 on small images. The peak stays
    what it was. Other C libraries are left alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # The first call alone would freeze the second threshold at 128 kB.
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP) and mallopt(_TRIM_THRESHOLD, _NEVER))


def require_memory(num_bytes: int, what: str) -> None:
    """Raise ``ValueError`` if ``what`` takes more bytes than the machine has."""
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > present:
        raise ValueError(
            f"{what} take {num_bytes / 2**30:.3g} GiB of memory, and this machine has {present / 2**30:.3g}: "
            "fewer workers or a smaller model"
        )
