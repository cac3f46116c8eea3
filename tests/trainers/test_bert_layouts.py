"""BERT with dropout, as classifier and masked language model: equal results with 1, 2 and 4 processes."""

from pathlib import Path

import pytest
import torch
from bert_training import STEPS, WORKERS, train_both
from processes import run_in_processes

pytestmark = pytest.mark.slow  # test_layouts.py has the fast tests of layouts


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train_both(0, 1, str(tmp_path_factory.mktemp("one")))
    torch.set_num_threads(threads)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_do_not_change_the_result(one_process: dict, processes: int, tmp_path: Path) -> None:
    for found in run_in_processes(train_both, processes, str(tmp_path)):
        for kind, expected in one_process.items():
            assert torch.equal(found[kind]["parameters"], expected["parameters"]), kind
            for name in ("losses", "quality", "total_error"):
                assert found[kind][name] == expected[name], (kind, name)


def test_workers_differ(one_process: dict) -> None:
    """Each worker has its own batch and dropout, so all losses of all steps differ."""
    for result in one_process.values():
        assert len(set(result["losses"])) == STEPS * WORKERS
        assert result["total_error"] > 0
