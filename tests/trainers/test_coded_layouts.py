"""Encodings: results do not depend on the number of processes, the hook or the kernels."""

from typing import Any

import pytest
import torch
from processes import run_in_processes
from training import coded_settings, quick_coded_settings, train, train_coded

from compressors.encoding.settings import Encoding
from compressors.kernels.choice import chosen

ALL = ["/".join(setting) for setting in coded_settings()]
QUICK = ["/".join(setting) for setting in quick_coded_settings()]
Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=["quick", pytest.param("all", marks=pytest.mark.slow)])
def one_process(request: pytest.FixtureRequest) -> Results:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train_coded(0, 1, QUICK if request.param == "quick" else ALL)
    torch.set_num_threads(threads)


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    for key in ("parameters", "buffers"):
        assert torch.equal(one[key], other[key])
    for key in ("losses", "metrics", "layers"):
        assert one[key] == other[key]


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_equal_one(one_process: Results, processes: int) -> None:
    for result in run_in_processes(train_coded, processes, list(one_process)):
        assert result.keys() == one_process.keys()
        for setting, own in result.items():
            assert_equal(one_process[setting], own)


def test_reference_equals_kernels(one_process: Results) -> None:
    with chosen("reference"):
        reference = train_coded(0, 1, list(one_process))
    for setting, own in reference.items():
        assert_equal(one_process[setting], own)


@pytest.mark.slow
def test_hook_equals_explicit(one_process: Results) -> None:
    """Weights are equal; each bucket is a message with additional bytes for its header and length."""
    layers = [setting for setting in one_process if "/layer/" in setting]
    result = run_in_processes(train_coded, 4, layers, True)[0]
    for setting in layers:
        assert torch.equal(result[setting]["parameters"], one_process[setting]["parameters"])
        assert result[setting]["losses"] == one_process[setting]["losses"]
        assert result[setting]["layers"] == one_process[setting]["layers"]


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


def test_rounded_values_change_the_result(one_process: Results) -> None:
    """The comparison of layouts is only meaningful if rounding changes the weights."""
    settings = [setting for setting in one_process if setting.startswith("hard_threshold/layer/")]
    weights = {tuple(one_process[setting]["parameters"].tolist()) for setting in settings}
    assert len(weights) == len(settings)
