"""The processor's name, by the standard library alone."""

import platform
from pathlib import Path


def processor() -> str:
    """As Linux names it; elsewhere as Python's ``platform`` does, which may know nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
