"""Ranks of processes that SLURM has started without torchrun."""

import os
from unittest.mock import patch

import pytest

from trainers.launch.slurm import take_ranks

OF_SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
RANKS = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (OF_SLURM | {"WORLD_SIZE": "8"}, ("5", "1", "4", "8")),
        (OF_SLURM, (None, None, None, None)),  # a job of one process
        (OF_SLURM | {"WORLD_SIZE": "8", "RANK": "2"}, ("2", None, None, "8")),  # torchrun in a SLURM job
    ],
)
def test_ranks_are_taken_where_a_batch_script_asks(
    given: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    others = {name: value for name, value in os.environ.items() if name not in (*RANKS, *OF_SLURM)}
    with patch.dict(os.environ, others | given, clear=True):
        take_ranks()
        assert tuple(os.environ.get(name) for name in RANKS) == expected
