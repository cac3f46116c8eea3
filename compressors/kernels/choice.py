"""Choice of the backend: the reference, or compiled loops with the same bits.

The backend is chosen once per process, as in torch. The choice changes no result.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

import torch

from compressors.core.checks import KERNELS, require_choice
from compressors.kernels.reference import Backend

_PACKAGES = {"cpu": "numba", "cuda": "triton"}
_REFERENCE = Backend()
_choice = "auto"


def choose(choice: str) -> None:
    """Set the backend: compiled loops if there are any (``auto``), or the reference (``reference``).

    Raises ``ValueError`` for another choice.
    """
    global _choice
    require_choice("kernels", KERNELS, choice)
    _choice = choice


@contextmanager
def chosen(choice: str) -> Iterator[None]:
    """Context manager: ``choose`` within the block."""
    before = _choice
    choose(choice)
    try:
        yield
    finally:
        choose(before)


def backend_of(device: torch.device) -> Backend:
    """The backend for ``device``."""
    return _REFERENCE if _choice == "reference" else _of_type(device.type)[0]


def describe(device: torch.device) -> str:
    """The name of the backend for ``device`` and, if compiled loops are missing, the reason."""
    reason = reason_without_loops(device)
    return f"reference ({reason})" if reason else backend_of(device).name


def reason_without_loops(device: torch.device) -> str:
    """Why there are no compiled loops for ``device``; empty if there are, and if nobody asked for them."""
    return "" if _choice == "reference" else _of_type(device.type)[1]


@lru_cache
def _of_type(device: str) -> tuple[Backend, str]:
    """The backend of a device type and, for the reference, the reason why there are no compiled loops."""
    package = _PACKAGES.get(device)
    if package is None:
        return _REFERENCE, f"there are no compiled loops for {device}"
    if find_spec(package) is None:
        return _REFERENCE, f"{package} is not installed"
    try:
        import_module(package)
    except (ImportError, OSError) as error:  # such as a NumPy that it does not support
        return _REFERENCE, f"{package} cannot be imported: {str(error).splitlines()[0]}"
    if device == "cpu":
        from compressors.kernels.cpu.backend import CpuKernels  # importing numba takes half a second

        return CpuKernels(), ""
    from compressors.kernels.gpu.backend import GpuKernels, reason_unavailable

    reason = reason_unavailable()
    return (_REFERENCE, reason) if reason else (GpuKernels(), "")
