"""Settings for all tests, applied before test modules are imported.

Without a GPU, Triton's kernels run in its interpreter. Workers of pytest-xdist have one thread each. A shell
makes background processes and their children ignore SIGINT; the default handler is restored.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import warm_template
from longest_files import LONGEST

signal.signal(signal.SIGINT, signal.default_int_handler)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
os.fsync = os.fstat  # test files need not survive a power failure, and fsync takes milliseconds
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    gc.disable()  # until all tests are collected


def pytest_configure(config: pytest.Config) -> None:
    """Start the template of all test processes' servers; it imports modules while they collect tests."""
    if config.getoption("dist", "no") != "no":
        warm_template.start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first, so that none of them starts near the end."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the server of processes before the contract of compressors starts one with fewer imports.

    Modules and tests are excluded from garbage collection, which took 5 % of the time.
    """
    gc.freeze()
    gc.set_threshold(5_000, 10, 20)
    gc.enable()
    if any(item.name.startswith("test_processes_change_nothing") for item in session.items):
        from processes import start_server

        start_server()


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore the variables of sweeps, so that the next program does not belong to this test's sweep."""
    before = _of_sweeps()
    yield
    for name, value in _of_sweeps().items():
        if name not in before:
            del os.environ[name]
        elif value != before[name]:
            os.environ[name] = before[name]


def _of_sweeps() -> dict[str, str]:
    found = {name for name in os.environ if name.startswith(("TOTAL_ERROR_", "HYDRA_"))}
    return {name: os.environ[name] for name in found - {warm_template.VARIABLE}}  # it serves all tests
