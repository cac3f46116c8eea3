"""Helpers for tests of the network benchmarks: imports from benchmarks/, and a skip without root."""

import importlib
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")), reason="needs root and iproute2"
)


def modules(monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[str, ModuleType]:
    """Modules of benchmarks/, which import each other by their file names."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return {name: importlib.import_module(name) for name in names}


def namespaces() -> list[str]:
    """The network namespaces of hosts that exist now."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if line.startswith("total-error-")]
