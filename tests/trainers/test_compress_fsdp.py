"""Compression of FSDP2's reduce-scatter, compared with the same training in one process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fsdp_cases import (
    HALF,
    METHODS,
    STEPS,
    all_cases,
    alone,
    mean_in_half_precision,
    with_fsdp,
    with_other_processes,
)
from methods import FEEDBACKS, named
from processes import run_in_processes
from script_cases import EXAMPLES, example, restarted_once

from compressors.api import Sparse, Step
from compressors.build import build_reducer
from compressors.core.codec import Compressed
from compressors.top_k import TopK
from trainers.hooks.owners import _outgoing
from trainers.hooks.scattered import InParts, scattered

Found = list[dict[str, Any]]
PROCESSES = 3  # the parts of a parameter then have different sizes
ALL_REDUCES = ("powersgd",)  # sums in the order of gloo's all-reduce
COLLECTIVES = (*ALL_REDUCES, "clt_k")  # not messages alone
REPLICATED = ("none", "hard_threshold", "qsgd")


@pytest.fixture(scope="module")
def trained() -> Found:
    return run_in_processes(with_fsdp, PROCESSES, 1, *METHODS)


@pytest.fixture(scope="module")
def replicated() -> Found:
    return run_in_processes(with_fsdp, 4, 2, *REPLICATED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    return run_in_processes(all_cases, 2, str(folder))


def test_the_layers_around_parts_are_those_of_the_whole() -> None:
    """A saved state names the wrappers, on which the meaning of a residual depends."""
    whole = build_reducer(named("qsgd", {}).method(), 64, FEEDBACKS["gradient"])
    parts = scattered(whole, {"weight": (0, 24, 64)}, range(2))
    assert any(isinstance(getattr(layer, "inner", None), InParts) for layer in parts.layers())
    assert [type(layer) for layer in parts.layers()] == [type(layer) for layer in whole.layers()]
    assert parts.traits == whole.traits


def test_positions_may_have_any_order() -> None:
    """A method of a user may send them as its search found them."""
    payload = Sparse(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([9, 1, 5], dtype=torch.int32))
    norms = torch.zeros(1, 1, dtype=torch.float64)
    own = Compressed(np.array([[3]]), norms, norms, (payload,), TopK(density=0.25), Step(0, 0))
    (sent,) = _outgoing([own], [(0, 4, 8, 12)])
    assert [(part.values.tolist(), part.indices.tolist()) for part in sent.parts] == [
        ([1.0], [1]),
        ([2.0], [5]),
        ([3.0], [9]),
    ]


@pytest.mark.parametrize("method", METHODS)
def test_weights_and_metrics_are_those_without_shards(method: str, trained: Found) -> None:
    weights, (expected,) = alone(method, PROCESSES)
    exact = method not in ALL_REDUCES
    for found in (own[method] for own in trained):
        torch.testing.assert_close(found["weights"], weights, rtol=0, atol=0 if exact else 1e-6)
        for name in ("compression/total_error", "compression/density_mean"):
            near = pytest.approx(expected[name], rel=1e-12 if exact else 1e-4, abs=1e-30)
            assert found["metrics"][name] == near, name
        assert found["metrics"]["step"] == STEPS


@pytest.mark.parametrize("method", [name for name in METHODS if name not in COLLECTIVES])
def test_link_bytes_are_those_of_the_messages(method: str, trained: Found) -> None:
    of_processes = [own[method] for own in trained]
    sent, received = zip(*[own["link"] for own in of_processes], strict=True)
    assert [own["messages"] for own in of_processes] == list(sent)
    assert sum(sent) == sum(received) > 0


def test_bytes_without_compression_are_those_of_a_reduce_scatter(trained: Found) -> None:
    assert trained[0]["none"]["metrics"]["comm/compression_ratio"] == pytest.approx(1)
    assert trained[0]["hard_threshold"]["metrics"]["comm/compression_ratio"] > 2


@pytest.mark.parametrize("method", REPLICATED)
def test_each_replica_has_its_own_reduce_scatter(method: str, replicated: Found) -> None:
    weights, expected = alone(method, 4, replicas=2)
    for found in (own[method] for own in replicated):
        assert torch.equal(found["weights"], weights)
        mean = sum(own["compression/total_error"] for own in expected) / 2
        assert found["metrics"]["compression/total_error"] == pytest.approx(mean, rel=1e-12, abs=1e-30)
    of_processes = [own[method] for own in replicated]
    assert [own["messages"] for own in of_processes] == [own["link"][0] for own in of_processes]
    assert [own["saved_as"] for own in of_processes] == [["0"], ["1"], ["2"], ["3"]]


def test_half_precision_is_added_in_fp32() -> None:
    for pairs in run_in_processes(mean_in_half_precision, PROCESSES):
        assert all(torch.equal(found, mean) for found, mean in pairs)


def test_a_lossless_method_gives_the_weights_of_fsdp2(found: Found) -> None:
    assert all(all(own["lossless"]) for own in found)


def test_accumulated_gradients_are_compressed_once(found: Found) -> None:
    weights, _ = alone("top_k", 2, batches=2)
    assert all(torch.equal(own["accumulated"], weights) for own in found)


def test_a_scaler_changes_nothing(found: Found) -> None:
    assert all(own["scaled"] for own in found)


def test_an_activation_checkpoint_is_no_step(found: Found) -> None:
    assert all(own["reentrant"] for own in found)


def test_a_step_with_an_infinite_gradient_is_undone(found: Found) -> None:
    for own in (own["overflow"] for own in found):
        assert own["kept"] and own["same"] and own["scale"] == 512.0
        assert own["changed"] == ["skipped"] and own["bytes"][0] == own["bytes"][1]


def test_a_script_resumes_bit_for_bit(found: Found) -> None:
    assert all(result["same"] for own in found for result in own["resumed"].values())


def test_other_numbers_of_processes_continue(found: Found, folder: Path) -> None:
    """The mean of the residuals does not change, whether a method is applied to parts or not."""
    continued = run_in_processes(with_other_processes, 3, str(folder), 2)
    for method in ("top_k", "ef_sign"):
        after = [own[method] for own in continued]
        before = [own["resumed"][method]["own"] for own in found]
        for name in before[0]:
            if name.startswith("worker/0/state/residual/"):
                old, new = (
                    torch.stack([own[name.replace("/0/", f"/{w}/", 1)] for w, own in enumerate(states)]).mean(
                        0
                    )
                    for states in (before, [own["own"] for own in after])
                )
                torch.testing.assert_close(old, new)
        assert all(own["step"] == HALF + 1 for own in after)


def test_the_example_continues_where_it_was(tmp_path: Path) -> None:
    saving = ["--save-every", "8", "--checkpoint", str(tmp_path)]
    calls = ["--steps", "12"], ["--steps", "10", *saving], ["--steps", "12", *saving]
    first, second = run_in_processes(example, 2, "fsdp.py", *calls)
    assert second == ["", "", ""] and first[0] == first[2] != first[1]


@pytest.mark.slow
def test_the_example_continues_when_torchrun_has_restarted_it(tmp_path: Path) -> None:
    """Process 1 is killed in step 11; the checkpoint is of step 8."""
    ((expected,), _) = run_in_processes(example, 2, "fsdp.py", ["--steps", "12"])
    options = ["--steps", "12", "--save-every", "8", "--checkpoint", str(tmp_path)]
    restarted_once(EXAMPLES / "fsdp.py", options, dies_in=10, expected=expected)


def test_a_state_is_printed_in_a_line(found: Found) -> None:
    expected = (
        "CompressionState(ErrorFeedback(inner=Compress(codec=TopK(density=0.2), "
        "transport=ToOwners(owners=range(0, 2))), scale='gradient', beta=1.0), 8 parameters, step 0)"
    )
    assert found[0]["printed"] == expected


def test_what_is_refused(found: Found) -> None:
    averaged = (
        "FSDP2 must average gradients, with float32 or bfloat16 as reduce_dtype and without "
        "set_gradient_divide_factor and set_force_sum_reduction_for_comms, got torch."
    )
    thawed = "a parameter that was frozen when the model was compressed cannot be trained under FSDP2, got"
    expected = {
        "plain": "Network has no module with fully_shard and trainable parameters",
        "twice": "compress_fsdp needs a model that it has not compressed before",
        "hook": "compress needs a DistributedDataParallel model, got FSDPNetwork: compress_fsdp is for FSDP2",
        "feedback": "feedback must not keep means of all workers, of which a process of FSDP2 receives a "
        "part, got EF21",
        "weights": "Visible needs the 35 weights of segment 'first.weight'",
        "unused": "every trainable parameter must have a gradient under FSDP2, got 85 of 89 elements",
        "float16": f"{averaged}float16",
        "factor": f"{averaged}float32",
        "meta": "compress_fsdp needs parameters with memory, got the device meta: call to_empty first",
        "thawed": f"{thawed} 24 elements instead of 0",
        "thawed in part": f"{thawed} 85 elements instead of 61",
    }
    for own in found:
        assert own["refused"] == expected
