"""Freed memory stays with the process, with glibc; exhausted memory is an error in one line."""

import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch

from trainers.launch.memory import exhaustion_in_one_line
from trainers.run import training

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


@pytest.mark.parametrize(
    "use", [lambda: torch.empty(2**50, dtype=torch.uint8), lambda: numpy.empty(2**50, dtype=numpy.uint8)]
)
def test_exhausted_memory_ends_a_training_in_one_line(
    use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "keep_freed_memory", use)
    with pytest.raises(
        OSError, match=r"^out of memory: (1125899906842624 bytes|1.00 PiB) are not free; use a "
    ):
        training.train({})


def test_other_errors_of_torch_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="size"), exhaustion_in_one_line():
        torch.ones(2) + torch.ones(3)
