"""BERT with dropout, NeuMF with drawn negatives, AutoLRS: equal results with 1, 2 and 4 processes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from processes import run_in_processes
from short_trainings import train_models

pytestmark = pytest.mark.slow  # test_layouts.py has the fast tests of layouts


@pytest.fixture(scope="module")
def one_process() -> Iterator[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train_models()
    torch.set_num_threads(threads)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_do_not_change_the_result(one_process: dict[str, Any], processes: int) -> None:
    for others in run_in_processes(train_models, processes):
        for name, one in one_process.items():
            other, exactly = others[name], "none" not in name  # an all-reduce rounds differently
            tolerance = {"rtol": 0, "atol": 0} if exactly else {"rtol": 1e-4, "atol": 1e-5}
            torch.testing.assert_close(other["weights"], one["weights"], **tolerance)
            for a, b in zip(one["records"], other["records"], strict=True):
                assert b == (a if exactly else pytest.approx(a, rel=1e-3))


def test_the_runs_are_long_enough_to_mean_something(one_process: dict[str, Any]) -> None:
    records = one_process["neumf, top_k"]["records"]
    assert records[-1]["epoch"] > 1
    assert sum("test/hit_rate_at_10" in record for record in records) >= 2
    assert len({tuple(run["weights"].tolist()) for run in one_process.values()}) == len(one_process)
