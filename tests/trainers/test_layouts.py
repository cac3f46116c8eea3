"""Layouts of workers over processes: equal results for 1 x 4, 2 x 2 and 4 x 1, and for the DDP hook."""

from typing import Any

import pytest
import torch
from processes import run_in_processes
from training import ignores_values, is_reduced, settings, train_all, train_all_reduced

ALL = ["/".join(setting) for setting in settings()]
LAYER = [name for name in ALL if "/layer/" in name]
Results = dict[str, dict[str, Any]]


def dealt() -> dict[str, list[str]]:
    """Every setting with one form of training, so that every form has each method, feedback and scope.

    Methods and the exchange of gradients interact only in pairs; the slow tests train all settings in
    all forms.
    """
    found: dict[str, list[str]] = {"two": [], "four": [], "hook": []}
    by_method: dict[str, list[str]] = {}
    for name in ALL:
        by_method.setdefault(name.split("/")[0], []).append(name)
    for number, names in enumerate(by_method.values()):
        layer, whole = ([n for n in names if f"/{scope}/" in n] for scope in ("layer", "global"))
        for feedback, way in enumerate(("hook", "two", "four")):
            found[way].append(layer[(feedback + number) % 3])
        for feedback, way in enumerate(("four", "two", "two")):
            found[way].append(whole[(feedback + number) % 3])
    return found


DEALT = dealt()


@pytest.fixture(scope="module")
def one_process() -> Results:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train_all(0, 1, ALL)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def two_processes(one_process: Results) -> Results:
    """After the training in one process, which compiles the kernels for all."""
    return run_in_processes(train_all, 2, DEALT["two"])[0]


@pytest.fixture(scope="module")
def four_processes(one_process: Results) -> Results:
    return run_in_processes(train_all, 4, DEALT["four"])[0]


@pytest.fixture(scope="module")
def overlapped(one_process: Results) -> Results:
    return run_in_processes(train_all, 4, DEALT["hook"], True)[0]


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


@pytest.mark.parametrize("setting", DEALT["two"])
def test_two_processes_equal_one(one_process: Results, two_processes: Results, setting: str) -> None:
    assert_same(one_process[setting], two_processes[setting])


@pytest.mark.parametrize("setting", DEALT["four"])
def test_four_processes_equal_one(one_process: Results, four_processes: Results, setting: str) -> None:
    assert_same(one_process[setting], four_processes[setting])


def test_all_reduce_rounds_by_the_number_of_processes(one_process: Results) -> None:
    all_reduced = run_in_processes(train_all_reduced, 2)[0]
    assert all_reduced.keys() == {setting for setting in ALL if is_reduced(setting.split("/")[0])}
    for setting, result in all_reduced.items():
        if ignores_values(setting.split("/")[0]):
            assert_same(one_process[setting], result, exactly=False)
    assert any(
        not torch.equal(result["parameters"], one_process[setting]["parameters"])
        for setting, result in all_reduced.items()
    )


@pytest.mark.parametrize("setting", DEALT["hook"])
def test_hook_equals_explicit(one_process: Results, overlapped: Results, setting: str) -> None:
    assert_same(one_process[setting], overlapped[setting])


def test_every_setting_is_dealt_and_every_way_meets_all_parts() -> None:
    assert sorted(name for names in DEALT.values() for name in names) == sorted(ALL)
    for way, names in DEALT.items():
        methods, scopes, feedbacks = (
            set(parts) for parts in zip(*(n.split("/") for n in names), strict=True)
        )
        assert methods == {name.split("/")[0] for name in ALL}
        assert feedbacks == {name.split("/")[2] for name in ALL}
        assert scopes == ({"layer"} if way == "hook" else {"layer", "global"})


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "overlap"), [(2, False), (4, False), (4, True)])
def test_every_setting_in_every_way(one_process: Results, processes: int, overlap: bool) -> None:
    found = run_in_processes(train_all, processes, LAYER if overlap else ALL, overlap)[0]
    assert found.keys() == set(LAYER if overlap else ALL)
    for name, result in found.items():
        assert_same(one_process[name], result)


def test_the_settings_differ(one_process: Results) -> None:
    """The comparison of layouts is only meaningful if settings change the weights."""
    seen = [tuple(result["parameters"].tolist()) for result in one_process.values()]
    # The 6 settings of "none" are two trainings, with and without micro-batches; a hard threshold, Strom's
    # method, AdaComp, EF-sign and 1-bit SGD are the same in both scopes, with each of 3 feedbacks.
    assert len(set(seen)) == len(seen) - 4 - 5 * 3
