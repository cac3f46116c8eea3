"""Published constants and convergence on madelon, if $DATA_DIR or .data has this dataset."""

import os
from pathlib import Path

import pytest
import torch
from building import built, results
from configs import resolved

from results.compare.paper import PROBLEMS

ROOT = Path(os.environ.get("DATA_DIR", ".data"))
HERE = any((ROOT / "libsvm" / f"madelon{end}").is_file() for end in ("", ".bz2", ".gz"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HERE, reason="no madelon here: data.download=true fetches it"),
]


def train(*overrides: str) -> tuple[dict, list[dict[str, float]]]:
    found = results(built(resolved(*overrides, f"data.root={ROOT}")))
    return found["summary"], found["records"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_constants() -> None:
    summary, _ = train("experiment=convex/madelon_sgd", "trainer.steps=1")
    found, printed = summary["problem"], PROBLEMS["madelon"]
    assert found["smoothness"] == pytest.approx(29790805.649335, abs=1e-6)
    assert found["optimum_value"] == pytest.approx(printed.optimum_value, abs=1e-11)
    assert found["start_value"] == pytest.approx(printed.start_value, abs=1e-6)


@pytest.mark.parametrize("compressor", ["top_k", "hard_threshold"])
def test_star_converges_as_far_as_promised(compressor: str) -> None:
    """||x - x*||^2 is below 1e-13 after 60,000 steps; a threshold's mean error is near d threshold^2 / 3."""
    summary, records = train(
        "experiment=convex/madelon_gd_star_20", f"compressor={compressor}", "trainer.log_every=100"
    )
    assert summary["step"] == 60_000
    assert summary["convex/distance_squared"] < 1e-13
    if compressor == "hard_threshold":
        errors = [r["compression/error"] for r in records if "compression/error" in r]
        settled = errors[len(errors) // 4 :]
        assert sum(settled) / len(settled) == pytest.approx(500 * 1e-7**2 / 3, rel=0.1)
        assert max(errors) <= 500 * 1e-7**2
