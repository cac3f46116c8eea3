"""Least squares: gradients against autograd, the optimum, runs on synthetic rows, refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch
from configs import resolved
from resuming import config_of, train

from data.convex.least_squares import least_squares as rows_of
from data.convex.rows import RowsDataset
from models.convex.least_squares import least_squares
from models.convex.logistic_l2 import logistic_l2
from trainers.identity.identity import identify

SIZES = {"rows": 60, "features": 7, "condition": 10.0, "noise": 0.5, "draw_seed": 1}


def signed(dataset: RowsDataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and targets; labels serve as targets if there are no others."""
    targets = dataset.labels if dataset.targets is None else dataset.targets
    return torch.from_numpy(dataset.features.toarray()), targets


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
