"""Freed memory stays with the process, with glibc; exhausted memory is an error in one line."""

from collections.abc import Callable

import numpy
import pytest
import torch

from trainers.launch.memory import exhaustion_in_one_line
from trainers.run import training


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
