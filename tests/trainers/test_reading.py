"""A batch that one process cannot read: all processes end with the same message."""

from types import SimpleNamespace
from typing import Any

import pytest
from processes import run_in_processes
from unreadable import read_where_the_last_process_fails

from trainers.comm.communicator import Communicator
from trainers.step.reading import UnreadableDataError, read_together

FILES = SimpleNamespace(reads_files=True)


def failing() -> Any:
    raise FileNotFoundError("no file a.png")


def test_what_is_read_is_returned() -> None:
    assert read_together(Communicator(2), FILES, lambda: [1, 2]) == [1, 2]
    assert read_together(Communicator(2), object(), lambda: [3]) == [3]


def test_a_failure_keeps_its_words() -> None:
    with pytest.raises(UnreadableDataError, match="no file a"):
        read_together(Communicator(2), FILES, failing)


def test_errors_of_other_kinds_and_of_data_in_memory_are_left_alone() -> None:
    with pytest.raises(FileNotFoundError):
        read_together(Communicator(2), object(), failing)
    with pytest.raises(ZeroDivisionError):
        read_together(Communicator(2), FILES, lambda: 1 / 0)


def test_all_processes_raise_what_one_met() -> None:
    assert run_in_processes(read_where_the_last_process_fails, 2) == ["b.png is no image"] * 2
