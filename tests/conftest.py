"""Settings for all tests, made before they import anything.

Without a GPU, Triton's kernels run in its interpreter. Workers of pytest-xdist share the cores, with one
thread each. A shell that starts tests in the background lets them and their children ignore SIGINT; this is
undone.
"""

import gc
import os
import signal
from pathlib import Path

import pytest
import torch
import warm_template
from longest_files import LONGEST

signal.signal(signal.SIGINT, signal.default_int_handler)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
os.fsync = os.fstat  # a test's files need not outlive a power failure, and a disk takes milliseconds
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    gc.disable()  # until all tests are collected


def pytest_configure(config: pytest.Config) -> None:
    """One template for the servers of all processes; it imports while they collect."""
    if config.getoption("dist", "no") != "no":
        warm_template.start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process is left with one at the end."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the server of processes before the contract's tests do, whose own imports less.

    Garbage collections leave out all modules and tests: they took a twentieth of the time.
    """
    gc.freeze()
    gc.set_threshold(5_000, 10, 20)
    gc.enable()
    if any(item.name.startswith("test_processes_change_nothing") for item in session.items):
        from processes import start_server

        start_server()
