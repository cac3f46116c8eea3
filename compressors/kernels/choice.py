"""Which kernels a device has."""

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from compressors.checks import require

CHOICES = ("auto", "reference")
_PACKAGES = {"cpu": "numba", "cuda": "triton"}


def require_choice(owner: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``CHOICES``."""
    require(value in CHOICES, owner, f"one of {', '.join(CHOICES)}", value)


def kernels_for(choice: str, device: str) -> Any:
    """The kernels for a type of device, None for the reference: by choice, or because there are no others."""
    return None if choice == "reference" else _of_device(device)[0]


def describe(choice: str, device: str) -> str:
    """What computes, and why if it is not a kernel."""
    if choice == "reference":
        return "reference"
    kernels, reason = _of_device(device)
    return f"reference, as {reason}" if kernels is None else kernels.name


@lru_cache
def _of_device(device: str) -> tuple[Any, str]:
    """The kernels, or None and why there are none."""
    package = _PACKAGES.get(device)
    if package is None:
        return None, f"there are none for {device}"
    if find_spec(package) is None:
        return None, f"{package} is not installed"
    if device == "cpu":
        from compressors.kernels.cpu import CpuKernels  # loading numba takes half a second

        return CpuKernels(), ""
    from compressors.kernels.gpu import GpuKernels, why_not

    reason = why_not()
    return (None, reason) if reason else (GpuKernels(), "")
