"""The processor's name, from the standard library."""

import platform
from pathlib import Path


def processor() -> str:
    """The name from /proc/cpuinfo on Linux, otherwise from ``platform``; it may be empty."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
