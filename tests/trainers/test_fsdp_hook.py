"""Compression between replicas under FSDP2: 2 replicas of 2 shards on gloo."""

from typing import Any

import pytest
import torch
from processes import run_in_processes
from sharded import REPLICAS, SHARDS, STEPS, all_with_shards, refusals, without_shards

METHODS = ("none", "hard_threshold", "top_k", "random_k", "powersgd")


@pytest.fixture(scope="module")
def trained() -> dict[str, list[dict[str, Any]]]:
    """Results of every process, by method."""
    of_processes = run_in_processes(all_with_shards, REPLICAS * SHARDS, *METHODS)
    return {method: [found[method] for found in of_processes] for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_all_processes_agree(method: str, trained: dict[str, list[dict[str, Any]]]) -> None:
    found = trained[method]
    assert all(torch.equal(result["weights"], found[0]["weights"]) for result in found)
    assert all(result["step"] == STEPS for result in found) and found[0]["weights"].isfinite().all()


@pytest.mark.parametrize("method", ["none", "hard_threshold"])
def test_a_method_of_single_entries_gives_what_it_gives_without_shards(
    method: str, trained: dict[str, list[dict[str, Any]]]
) -> None:
    """Weights, bytes of values and bytes of positions. Metadata differ: every shard sends its own count."""
    weights, handed = without_shards(method)
    torch.testing.assert_close(trained[method][0]["weights"], weights, rtol=0, atol=1e-6)
    of_replicas = [sum(result["bytes"][kind] for result in trained[method]) / REPLICAS for kind in range(2)]
    assert of_replicas == handed[:2] and handed[0] > 0


@pytest.mark.parametrize("method", ["top_k", "random_k", "powersgd"])
def test_other_methods_compress_each_part(method: str, trained: dict[str, list[dict[str, Any]]]) -> None:
    dense = trained["none"][0]
    assert not torch.equal(trained[method][0]["weights"], dense["weights"])
    assert 0 < sum(trained[method][0]["bytes"]) < sum(dense["bytes"])


def test_residuals_are_of_a_processs_own_parts(trained: dict[str, list[dict[str, Any]]]) -> None:
    found = trained["top_k"]
    first, second = (found[process]["own"] for process in range(SHARDS))
    assert first["first.weight"] == [1, 4 * 5] and second["first.weight"] == [1, 3 * 5]
    assert "last.bias" in first and "last.bias" not in second
    assert list(first) == found[0]["order"] == found[1]["order"], "the order in FSDP2's buffers"


def test_what_cannot_be_compressed_is_refused_in_a_line() -> None:
    for said in run_in_processes(refusals, REPLICAS * SHARDS):
        assert said == [
            "Network has no module with fully_shard and trainable parameters",
            "compress_replicas needs a model that it has not compressed before: a module takes one "
            "all-reduce hook, once",
            "fully_shard must have a mesh of one dimension, such as mesh['shard']: with two it averages all "
            "gradients itself, got 2 for first.weight",
            "every parameter must be below a module with fully_shard, got scale",
            "replicas must be a mesh of one dimension, got 2",
            "every trainable parameter must have a gradient under FSDP2, got 26 of 30 elements",
            "reduce_dtype must be the parameters' torch.float32, got torch.bfloat16",
            "a parameter that was frozen when the model was compressed cannot be trained under FSDP2, got 24 "
            "elements instead of 0",
        ]
