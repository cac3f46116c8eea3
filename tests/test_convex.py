"""Convex experiments on small problems: numbers of processes, convergence, records, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from building import built, results
from configs import resolved
from libsvm_files import write_rows
from processes import run_in_processes

from trainers.training import Training

METHODS = {
    "none": [],
    "top_k": ["budget.density=0.1"],
    "hard_threshold": ["compressor.threshold=2e-3"],
    "random_k": ["budget.density=0.1"],
    "random_k own": ["budget.density=0.1", "compressor.shared_coordinates=false"],
    "random_block": ["budget.density=0.1"],
}
SETTINGS = {
    "sgd": ["trainer.batch_size=1"],
    "batch": ["trainer.batch_size=3"],
    "gd": ["trainer.batch_size=null"],
    "star": ["trainer.batch_size=null", "model.shift=true"],
    "uneven": ["trainer.batch_size=null", "data.partition=dirichlet", "data.alpha=0.3"],
    "sparse": ["trainer.batch_size=null", "data.name=sparse"],
    "sparse sgd": ["trainer.batch_size=1", "data.name=sparse"],
}
PLAIN = ("sgd", "uneven")


# A method does not depend on the source of its vectors, so not all combinations are tested
NAMES = [f"{method}/{setting}" for method in ("none", "top_k") for setting in SETTINGS]
NAMES += [f"{method}/{setting}" for method in METHODS if method not in ("none", "top_k") for setting in PLAIN]
DEALT = {2: NAMES[::2], 4: NAMES[1::2]}  # by number of processes; both have every method and setting


def config_of(root: Path, *overrides: str) -> dict[str, Any]:
    return resolved("experiment=convex/madelon_sgd", "data.name=few", f"data.root={root}", *overrides)


def trainer(root: Path, *overrides: str) -> Training:
    return built(config_of(root, *overrides))


def train(root: Path, *overrides: str) -> dict[str, Any]:
    return results(trainer(root, "trainer.log_every=5", *overrides))


def config_named(root: Path, name: str) -> dict[str, Any]:
    method, setting = name.split("/")
    typed = [f"compressor={method.split()[0]}", *METHODS[method], *SETTINGS[setting]]
    return config_of(root, *typed, "workers=4", "trainer.steps=12", "trainer.log_every=5")


def train_all(process: int, processes: int, configs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    torch.set_num_threads(1)
    return {name: results(built(config, process, processes)) for name, config in configs.items()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_rows(folder, "few", rows=83, features=30)
    write_rows(folder, "sparse", rows=120, features=30, density=0.1)
    write_rows(folder, "even", rows=200, features=30)
    return folder


def trained(root: Path, names: list[str], processes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of these trainings in one process and in several."""
    configs = {name: config_named(root, name) for name in names}
    threads = torch.get_num_threads()
    one = train_all(0, 1, configs)
    torch.set_num_threads(threads)
    return one, run_in_processes(train_all, processes, configs)[0]


@pytest.fixture(scope="module")
def two_processes(root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return trained(root, DEALT[2], 2)


def require_alike(one_process: dict[str, Any], found: dict[str, Any]) -> None:
    """Assert equality: bit for bit for gathered payloads, within rounding for an all-reduce."""
    for name, one in one_process.items():
        other = found[name]
        gathered = name.split("/")[0] in ("top_k", "hard_threshold", "random_k own")
        if gathered:
            assert torch.equal(one["weights"], other["weights"]), name
        torch.testing.assert_close(one["weights"], other["weights"], rtol=1e-9, atol=1e-12)
        for a, b in zip(one["records"], other["records"], strict=True):
            for key, value in a.items():
                # means over workers and f(x) - f* are sums with rounding errors
                expected = value if gathered else pytest.approx(value, rel=1e-9, abs=1e-11)
                assert b[key] == expected, (name, key)


def test_layouts_agree(two_processes: tuple[dict[str, Any], dict[str, Any]]) -> None:
    require_alike(*two_processes)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "names"), [(2, DEALT[4]), (4, NAMES)], ids=["2", "4"])
def test_other_layouts_agree(root: Path, processes: int, names: list[str]) -> None:
    require_alike(*trained(root, names, processes))


@pytest.mark.parametrize("settings", [[], ["workers=7", "data.partition=dirichlet", "data.alpha=0.2"]])
def test_gd_without_compression_is_gradient_descent(root: Path, settings: list[str]) -> None:
    """The relative difference after 1000 steps is at most 1e-12, also with shards of different sizes."""
    found = trainer(
        root, "compressor=none", "workers=5", "trainer.batch_size=null", "trainer.steps=1000", *settings
    )
    model, dataset = found.model, found.dataset
    features, labels = dataset.features.toarray(), dataset.labels.numpy()
    x = model.weight.detach().numpy().copy()
    for _ in range(1000):
        pull = -labels / (1 + np.exp(labels * (features @ x))) / len(labels)
        x -= model.step_size * (features.T @ pull + model.l2 * x)
    reached = results(found)["weights"].numpy()
    assert np.linalg.norm(reached - x) <= 1e-12 * np.linalg.norm(x)


@pytest.mark.parametrize(
    "compressor",
    [
        pytest.param(["compressor=top_k", "budget.density=0.1"], marks=pytest.mark.slow),
        ["compressor.threshold=1e-9"],
    ],
)
def test_star_converges_linearly_to_the_optimum(root: Path, compressor: list[str]) -> None:
    """l2 is large, so that a short run converges."""
    typed = [
        "data.name=even",
        "trainer.batch_size=null",
        "model.shift=true",
        "model.l2=0.05",
        "trainer.steps=1500",
    ]
    result = train(root, *typed, *compressor)
    distances = [r["convex/distance_squared"] for r in result["records"] if "convex/distance_squared" in r]
    assert distances[0] == pytest.approx(30 * 1e-8)
    assert distances[-1] < 1e-15
    if "compressor=top_k" in compressor:  # gradients of workers at x* that differ keep the error above 0
        gradient_descent = train(root, *[t for t in typed if "shift" not in t], *compressor)
        assert gradient_descent["records"][-1]["convex/distance_squared"] > 1e3 * distances[-1]


def test_records_before_the_first_step_and_after(root: Path) -> None:
    result = train(root, "trainer.steps=12", "workers=4", "compressor=top_k", "budget.density=0.1")
    records, summary = result["records"], result["summary"]
    assert [r["step"] for r in records] == [0, 5, 10, 12]
    assert records[0].keys() == {"step", "epoch", "convex/suboptimality", "convex/distance_squared"}
    for record in records[1:]:
        assert record["comm/paper_bits_total"] == 32 * 3 * record["step"]
        assert record["comm/bytes_sent_total"] == (8 + 4) * 3 * record["step"]
        assert record["compression/input_norm_squared"] > record["compression/error"] > 0
        assert record["epoch"] == pytest.approx(record["step"] * 4 / 83)
    assert summary["problem"]["start_value"] - summary["problem"]["optimum_value"] == pytest.approx(
        records[0]["convex/suboptimality"]
    )
    assert summary["data"]["rows_per_worker"] == "20 to 21, each counting 4/83"
    assert summary["data"]["labels"] == {"-1": -1, "1": 1}


def test_threshold_bounds_the_residual(root: Path) -> None:
    """Every recorded compression error is at most d threshold^2."""
    result = train(root, "trainer.steps=200", "compressor.threshold=0.01", "trainer.batch_size=1")
    errors = [r["compression/error"] for r in result["records"][1:]]
    assert 0 < max(errors) <= 30 * 0.01**2
