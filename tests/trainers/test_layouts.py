"""Layouts of workers over processes: equal results for 1 x 4, 2 x 2 and 4 x 1, and for the DDP hook."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from methods import FEEDBACKS, cases
from processes import run_in_processes
from training import (
    coded_settings,
    ignores_values,
    is_reduced,
    quick_coded_settings,
    settings,
    train,
    train_all,
    train_in_turn,
    train_many,
)

from compressors.encoding.settings import Encoding

PLAIN = ["/".join(setting) for setting in settings()]
ALL = PLAIN + ["/".join(setting) for setting in coded_settings()]
DENSE = [name for name in PLAIN if name.startswith("none/layer/")]
Results = dict[str, dict[str, Any]]


def dealt() -> dict[str, list[str]]:
    """One setting of every method, trained in one way: in two processes or in four.

    Encodings are trained in two processes. The contract's tests reduce with every method in two processes.
    The slow tests train all settings of all examples of a method in all ways.
    """
    found: dict[str, list[str]] = {"two": [], "four": []}
    for number, method in enumerate(FIRST):
        way = list(found)[number % 2]
        found[way].append(f"{method}/{SCOPES[number // 2 % 2]}/{list(FEEDBACKS)[number // 2 % 3]}")
    found["two"] += ["powersgd-rank=2-residual=mean/layer/gradient"]  # products with means of several rows
    found["two"] += ["/".join(setting) for setting in quick_coded_settings()]
    return found


FIRST = list({case.source: str(case) for case in reversed(cases())}.values())[::-1]  # first of each method
SCOPES = ("layer", "global")
DEALT = dealt()
QUICK = [name for names in DEALT.values() for name in names]
REDUCED = [setting for setting in QUICK if setting in PLAIN and is_reduced(setting.split("/")[0])]
# Arguments of train_all: names, reduction, nodes
GROUPS: dict[int, dict[str, tuple]] = {
    2: {
        "dealt": (DEALT["two"],),
        "nodes": (DEALT["two"], "worker_order", 2),
        "all_reduce": (REDUCED, "all_reduce"),
    },
    4: {
        "dealt": (DEALT["four"],),
        "nodes": (DEALT["four"], "worker_order", 2),
        "dense worker_order": (DENSE,),
        "dense all_reduce": (DENSE, "all_reduce"),
    },
}


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def one_process(one_thread: None) -> Results:
    return train_all(0, 1, QUICK)


@pytest.fixture(scope="module")
def several_processes(one_process: Results) -> dict[int, list[list[Results]]]:
    """The trainings of all tests in two and in four processes, by ``GROUPS``: [process][group].

    One start for all of them, because a process takes seconds to load the kernels. Depends on
    ``one_process``, because its training compiles the kernels for all processes.
    """
    return {
        processes: run_in_processes(train_in_turn, processes, *groups.values())
        for processes, groups in GROUPS.items()
    }


@pytest.fixture(scope="module")
def found_by(several_processes: dict[int, list[list[Results]]]) -> Callable[..., Results]:
    """The results of a group in a number of processes, those of the first process or of another one."""

    def found(processes: int, group: str, process: int = 0) -> Results:
        return several_processes[processes][process][list(GROUPS[processes]).index(group)]

    return found


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
            rounded = ("error" in key or "norm" in key) and not exactly
            assert other["layers"][name][key] == (pytest.approx(value, rel=1e-4) if rounded else value)


@pytest.mark.parametrize("setting", QUICK)
def test_processes_change_nothing(
    one_process: Results, found_by: Callable[..., Results], setting: str
) -> None:
    other_ways = found_by(2, "dealt") | found_by(4, "dealt")
    assert_same(one_process[setting], other_ways[setting])


@pytest.fixture(scope="module")
def two_nodes(one_thread: None) -> Results:
    return train_all(0, 1, QUICK, num_nodes=2)


@pytest.mark.parametrize("setting", QUICK)
def test_processes_change_nothing_between_nodes(
    two_nodes: Results, found_by: Callable[..., Results], setting: str
) -> None:
    """In two processes of one node each, or in four, two for a node; a process loads few methods' kernels."""
    processes = 2 if setting in DEALT["two"] else 4
    assert_same(two_nodes[setting], found_by(processes, "nodes", process=-1)[setting])


@pytest.mark.parametrize("name", ["hard_threshold", "top_k"])
def test_coded_indices_change_bytes_alone(name: str) -> None:
    plain = train(name, "layer", "gradient")
    for indices in ("auto", "bitmap", "rice"):
        coded = train(name, "layer", "gradient", wire=Encoding(indices=indices))
        assert torch.equal(plain["parameters"], coded["parameters"])
        assert plain["losses"] == coded["losses"]
        last, before = coded["metrics"][-1], plain["metrics"][-1]
        assert last["comm/values_bytes_total"] == before["comm/values_bytes_total"]
        assert last["compression/total_error"] == before["compression/total_error"]
        assert last["comm/bytes_sent_total"] < before["comm/bytes_sent_total"]
        assert last["comm/entropy_bound_bytes_total"] == before["comm/entropy_bound_bytes_total"]


def test_all_reduce_rounds_by_the_number_of_processes(
    one_process: Results, found_by: Callable[..., Results]
) -> None:
    all_reduced = found_by(2, "all_reduce")
    assert all_reduced and list(all_reduced) == REDUCED
    for setting, result in all_reduced.items():
        if ignores_values(setting.split("/")[0]):
            assert_same(one_process[setting], result, exactly=False)
    assert any(
        not torch.equal(result["parameters"], one_process[setting]["parameters"])
        for setting, result in all_reduced.items()
    )


@pytest.mark.parametrize("reduction", ["worker_order", "all_reduce"])
def test_dense_steps_in_buckets_change_nothing(found_by: Callable[..., Results], reduction: str) -> None:
    """But for rounding, in four processes, where buckets are reduced during the backward pass."""
    one = train_all(0, 1, DENSE)
    assert len(one) == len(FEEDBACKS)
    found = found_by(4, f"dense {reduction}")
    assert found.keys() == one.keys()
    for name, result in found.items():
        assert_same(one[name], result, exactly=reduction == "worker_order")


@pytest.mark.slow
def test_eight_processes_change_nothing(one_thread: None) -> None:
    assert_same(train_many(0, 1), run_in_processes(train_many, 8)[0])


def test_the_settings_differ(one_process: Results) -> None:
    """The comparison of layouts is only meaningful if settings change the weights."""
    plain = {name: result for name, result in one_process.items() if name in PLAIN}
    assert number_of_trainings(plain) == len(plain)
    coded = [name for name in one_process if name.startswith("hard_threshold/layer/") and name not in PLAIN]
    assert number_of_trainings({name: one_process[name] for name in coded}) == len(coded) == 4


def number_of_trainings(results: Results) -> int:
    return len({tuple(result["parameters"].tolist()) for result in results.values()})


@pytest.fixture(scope="module")
def all_in_one_process(one_thread: None) -> Results:
    return train_all(0, 1, ALL)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_every_setting_in_every_way(all_in_one_process: Results, processes: int) -> None:
    found = run_in_processes(train_all, processes, ALL)[0]
    assert found.keys() == set(ALL)
    for name, result in found.items():
        assert_same(all_in_one_process[name], result)


@pytest.mark.slow
def test_all_settings_differ(all_in_one_process: Results) -> None:
    """The six settings of "none" have two results. Eleven methods give equal results in both scopes.

    These are two hard thresholds, Strom's method, AdaComp, EF-sign, 1-bit SGD, two settings each of
    chunk_top_k and demo, and visible, each with three feedbacks.
    """
    plain = {name: result for name, result in all_in_one_process.items() if name in PLAIN}
    assert number_of_trainings(plain) == len(PLAIN) - 4 - 11 * 3
