"""Workers are not processes: 1 x 4, 2 x 2 and 4 x 1 give the same result, and so does the DDP hook."""

from typing import Any

import pytest
import torch
from processes import run_in_processes
from training import is_reduced, settings, train_all, train_all_reduced

ALL = ["/".join(setting) for setting in settings()]
Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def one_process() -> Results:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train_all(0, 1)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def two_processes() -> Results:
    return run_in_processes(train_all, 2)[0]


@pytest.fixture(scope="module")
def four_processes() -> Results:
    return run_in_processes(train_all, 4)[0]


@pytest.fixture(scope="module")
def overlapped() -> Results:
    return run_in_processes(train_all, 4, True)[0]


def assert_same(one: dict[str, Any], other: dict[str, Any], *, exactly: bool = True) -> None:
    tolerance = {"rtol": 0, "atol": 0} if exactly else {"rtol": 1e-5, "atol": 1e-5}
    for key in ("parameters", "buffers"):
        torch.testing.assert_close(other[key], one[key], **tolerance)
    assert other["losses"] == pytest.approx(one["losses"], rel=0 if exactly else 1e-5)
    for a, b in zip(one["metrics"], other["metrics"], strict=True):
        for name, value in a.items():
            rounded = ("error" in name or "norm" in name) and not exactly
            assert b[name] == (pytest.approx(value, rel=1e-4, abs=1e-12) if rounded else value), name
    for name, layer in one["layers"].items():
        for key, value in layer.items():
            error = "error" in key and not exactly
            assert other["layers"][name][key] == (pytest.approx(value, rel=1e-4) if error else value)


@pytest.mark.parametrize("setting", ALL)
def test_two_processes_equal_one(one_process: Results, two_processes: Results, setting: str) -> None:
    assert_same(one_process[setting], two_processes[setting])


@pytest.mark.parametrize("setting", ALL)
def test_four_processes_equal_one(one_process: Results, four_processes: Results, setting: str) -> None:
    assert_same(one_process[setting], four_processes[setting])


def test_all_reduce_rounds_by_the_number_of_processes(one_process: Results) -> None:
    all_reduced = run_in_processes(train_all_reduced, 2)[0]
    assert all_reduced.keys() == {setting for setting in ALL if is_reduced(setting.split("/")[0])}
    for setting, result in all_reduced.items():
        assert_same(one_process[setting], result, exactly=False)
    assert any(
        not torch.equal(result["parameters"], one_process[setting]["parameters"])
        for setting, result in all_reduced.items()
    )


@pytest.mark.parametrize("setting", [s for s in ALL if "/layer/" in s])
def test_hook_equals_explicit(four_processes: Results, overlapped: Results, setting: str) -> None:
    assert_same(four_processes[setting], overlapped[setting])


def test_the_settings_differ(one_process: Results) -> None:
    """Equal layouts mean something only where settings do change the weights."""
    seen = [tuple(result["parameters"].tolist()) for result in one_process.values()]
    # The 6 settings of "none" are two trainings, with and without micro-batches; a hard threshold is the
    # same in both scopes, with each of 3 feedbacks.
    assert len(set(seen)) == len(seen) - 4 - 3
