"""``keep_freed_memory``: with glibc, freed memory stays with the process."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import resource
import torch
from trainers.launch.memory import keep_freed_memory
assert keep_freed_memory()
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [torch.zeros(2**20) for _ in range(16)]  # 4 MiB, 1024 pages each
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    del held
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told so")
@pytest.mark.slow
def test_what_is_freed_is_used_again_without_the_kernel() -> None:
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, capture_output=True, check=True, text=True, cwd=ROOT)
    assert int(ended.stdout) < 1024  # usually 0; 16,000 if all memory is returned and allocated again
