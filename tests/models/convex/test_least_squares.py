"""Least squares: gradients against autograd, the optimum, runs on synthetic rows, refusals."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from configs import resolved
from libsvm_files import write_rows
from resuming import config_of, train

from compressors.core.randomness import generator
from data.convex.least_squares import least_squares as rows_of
from data.convex.libsvm import libsvm
from data.convex.rows import RowsDataset
from models.convex.least_squares import least_squares
from models.convex.logistic_l2 import logistic_l2
from trainers.identity.identity import identify

SIZES = {"rows": 60, "features": 7, "condition": 10.0, "noise": 0.5, "draw_seed": 1}


def signed(dataset: RowsDataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and targets; labels serve as targets if there are no others."""
    targets = dataset.labels if dataset.targets is None else dataset.targets
    return torch.from_numpy(dataset.features.toarray()), targets


def by_autograd(dataset: RowsDataset, weights: torch.Tensor, own: torch.Tensor, x: torch.Tensor, l2: float):
    x = x.clone().requires_grad_()
    features, targets = signed(dataset)
    loss = (weights * (features[own] @ x - targets[own]).square()).sum() / 2 + l2 / 2 * x @ x
    (gradient,) = torch.autograd.grad(loss, x)
    return loss.item(), gradient


@pytest.mark.parametrize("kind", ["synthetic", "labels", "sparse labels"])
@pytest.mark.parametrize("shift", [False, True])
def test_gradients_of_shards_and_of_batches(tmp_path: Path, kind: str, shift: bool) -> None:
    if kind == "synthetic":
        dataset = rows_of(**SIZES, replacement=True)
    else:
        write_rows(tmp_path, "few", 60, 7, density=0.1 if kind == "sparse labels" else 1.0)
        dataset = libsvm(name="few", root=str(tmp_path), replacement=True)
    model = least_squares(**dataset.model_arguments(), l2=0.02, offset=0.3, shift=shift)
    x = model.weight.detach()
    for batch_size in (None, 3):
        loader = dataset.loader(4, range(4), batch_size, partial(generator, 1))
        model.begin(loader.whole())
        out = torch.zeros(4, 7, dtype=torch.float64)
        losses = model.worker_gradients(loader.batches(2), out)
        drawn = loader._indices(2).reshape(4, 3) if batch_size else [part.numpy() for part in loader.shards]
        for worker, shard in enumerate(loader.shards):
            own = torch.from_numpy(np.asarray(drawn[worker]))
            weights = torch.full((len(own),), 1 / len(own), dtype=torch.float64)
            loss, expected = by_autograd(dataset, weights, own, x, model.l2)
            if shift:
                whole = torch.full((len(shard),), 1 / len(shard), dtype=torch.float64)
                expected = expected - by_autograd(dataset, whole, shard, model.optimum, model.l2)[1]
            torch.testing.assert_close(out[worker], expected, rtol=1e-10, atol=1e-12)
            assert losses[worker].item() == pytest.approx(loss, rel=1e-12)


def test_the_optimum_is_that_of_numpy() -> None:
    dataset = rows_of(**SIZES)
    model = least_squares(**dataset.model_arguments())
    features, targets = (part.numpy() for part in signed(dataset))
    expected, *_ = np.linalg.lstsq(features, targets, rcond=None)
    np.testing.assert_allclose(model.optimum.numpy(), expected, rtol=1e-10)
    assert model.optimum_value == pytest.approx(((features @ expected - targets) ** 2).mean() / 2, rel=1e-12)
    assert model.smoothness == pytest.approx(np.linalg.norm(features, 2) ** 2 / 60, rel=1e-12)
    assert model.l2 == 0 and model.step_size == 1 / model.smoothness
    assert least_squares(**dataset.model_arguments(), l2=None).l2 == model.smoothness / 10000


def test_the_rows_are_those_of_their_own_seed() -> None:
    one, same, other = (rows_of(**SIZES | {"draw_seed": seed}) for seed in (1, 1, 2))
    for ours, theirs in zip(signed(one), signed(same), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(signed(one)[1], signed(other)[1])
    many = signed(rows_of(**SIZES | {"rows": 20_000}))[0]
    assert torch.linalg.cond(many.T @ many).item() == pytest.approx(10, rel=0.1)
    exact = rows_of(**SIZES | {"noise": 0.0})
    assert least_squares(**exact.model_arguments()).optimum_value < 1e-28


def test_gd_converges_at_the_rate_of_the_condition_and_decreasing_rates_beat_a_constant_one(
    tmp_path: Path,
) -> None:
    """f - f* falls at least as (1 - 1 / 6)^t; with batches of one row a constant rate stalls at the noise."""
    base = (
        "experiment=topk_convergence/least_squares",
        "data.rows=400",
        "data.features=8",
        "data.condition=4",
    )
    exact = (*base, "compressor=none", "trainer.batch_size=null", "trainer.steps=60")
    records = train(config_of(tmp_path / "gd", *exact))["records"]
    found = {record["step"]: record["convex/suboptimality"] for record in records}
    for step in (20, 40, 60):
        assert found[step] <= found[0] * (1 - 1 / 6) ** step + 1e-15
    noisy = (*base, "compressor=top_k", "data.noise=1", "trainer.steps=600", "trainer.batch_size=1")
    ends = {}
    for schedule in (("schedule=constant",), ("schedule=inverse", "schedule.decay=0.05")):
        records = train(config_of(tmp_path / schedule[0].removeprefix("schedule="), *noisy, *schedule))[
            "records"
        ]
        last = [record["convex/suboptimality"] for record in records if record["step"] > 500]
        ends[schedule[0]] = sum(last) / len(last)
    assert ends["schedule=inverse"] < ends["schedule=constant"] / 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 0}, r"data\.rows must be"),
        ({"condition": 0.5}, r"data\.condition must be a finite number >= 1, got 0\.5"),
        ({"noise": float("nan")}, r"data\.noise"),
        ({"partition": "by_label"}, r"data\.partition must be one of iid, contiguous, got 'by_label'"),
    ],
)
def test_bad_rows_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_of(**SIZES | settings)


def test_problems_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"logistic_l2 needs labels, and data=least_squares has targets"):
        logistic_l2(**rows_of(**SIZES).model_arguments())
    with pytest.raises(ValueError, match=r"no unique minimum: the features are linearly dependent"):
        least_squares(**rows_of(**SIZES | {"rows": 5}).model_arguments())
    assert least_squares(**rows_of(**SIZES | {"rows": 5}).model_arguments(), l2=0.1).optimum_value > 0
    with pytest.raises(ValueError, match=r"model\.l2 must be a finite number >= 0, or null, got -1"):
        least_squares(**rows_of(**SIZES).model_arguments(), l2=-1)


def test_a_run_has_an_id_of_its_own_rows() -> None:
    typed = ("experiment=topk_convergence/least_squares", "compressor=top_k")
    assert len({identify(resolved(*typed, f"data.draw_seed={seed}")).id for seed in (0, 1)}) == 2
