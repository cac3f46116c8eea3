"""Learning-rate factors, compared with hand-computed numbers."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resuming import config_of, train

from trainers.schedules.schedules import (
    ConstantRate,
    Cosine,
    InversePower,
    Linear,
    WarmupStep,
    factor_at,
)

# 300 epochs, a base rate of 0.1 scaled by 16 to 1.6 (Sahu et al., 2021)
PAPER = WarmupStep(peak=16.0, warmup_epochs=5, milestones=(150, 250), decay=0.1)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, 1.0),
        (1 / 98, 1 + 15 / 5 / 98),
        (3, 10.0),
        (5, 16.0),
        (149.999, 16.0),
        (150, 1.6),
        (250, 0.16),
    ],
)
def test_the_papers_schedule(epoch: float, expected: float) -> None:
    assert PAPER.factor(epoch, 300) == pytest.approx(expected, rel=1e-12)


def test_without_warmup_the_peak_holds_from_the_start() -> None:
    schedule = WarmupStep(peak=3.0, milestones=[2], decay=0.5)
    assert [schedule.factor(epoch, 4) for epoch in (0, 1.9, 2, 3)] == [3.0, 3.0, 1.5, 1.5]


def test_milestone_at_zero_and_within_the_warmup() -> None:
    schedule = WarmupStep(peak=5.0, warmup_epochs=4, milestones=(0, 2), decay=0.5)
    assert [schedule.factor(epoch, 9) for epoch in (0, 1, 2, 4)] == [0.5, 1.0, 0.75, 1.25]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, 1.0),
        (5, 1.5),
        (35, 1 + math.sqrt(0.5)),
        (60, 1.0),
        (110, 0.0),
    ],
)
def test_cosine_after_a_warmup(epoch: float, expected: float) -> None:
    """Warm-up to 2 at epoch 10, then half a cosine over 100 epochs."""
    assert Cosine(peak=2.0, warmup_epochs=10).factor(epoch, 110) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, 0.0), (0.1, 1 / 3), (0.3, 1.0), (0.57, 0.9), (1.65, 0.5), (3, 0.0), (3.1, 0.0)],
)
def test_linear_as_bert_is_fine_tuned(epoch: float, expected: float) -> None:
    """3 epochs: the rate rises in the first tenth and falls in the rest."""
    assert Linear().factor(epoch, 3) == pytest.approx(expected, abs=1e-12)


def test_linear_warmup_in_epochs() -> None:
    """``warmup_epochs`` overrides ``warmup_share``."""
    schedule = Linear(warmup_epochs=2, warmup_share=0.5)
    factors = [schedule.factor(epoch, 10) for epoch in (0, 1, 2, 6, 10)]
    assert factors == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0], abs=1e-12)
    assert Linear(warmup_epochs=5).factor(2, 3) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [(1.0, [1, 1 / 2, 1 / 5, 1 / 101]), (0.5, [1, math.sqrt(1 / 2), math.sqrt(1 / 5), math.sqrt(1 / 101)])],
)
def test_inverse_powers_of_the_time(exponent: float, expected: list[float]) -> None:
    schedule = InversePower(decay=0.01, exponent=exponent, warmup=0, unit="step")
    factors = [schedule.factor(step, 7) for step in (0, 100, 400, 10_000)]
    assert factors == pytest.approx(expected, rel=1e-14)


def test_inverse_powers_in_steps_and_in_epochs() -> None:
    """A step is a quarter of an epoch, so the time in epochs is a quarter of the time in steps."""
    in_steps, in_epochs = (
        InversePower(decay=0.5, exponent=1, warmup=0, unit=unit) for unit in ("step", "epoch")
    )
    for step in (0, 1, 4, 9):
        assert factor_at(in_steps, step, 12, 0.25) == pytest.approx(1 / (1 + 0.5 * step))
        assert factor_at(in_epochs, step, 12, 0.25) == pytest.approx(1 / (1 + 0.125 * step))


def test_a_run_follows_a_decreasing_rate(tmp_path: Path) -> None:
    typed = ("model=mlp", "workers=2", "trainer.batch_size=8", "trainer.steps=5", "trainer.log_every=1")
    config = config_of(tmp_path, *typed, "schedule=inverse", "schedule.decay=0.5", "optimizer.lr=0.1")
    rates = [record["train/learning_rate"] for record in train(config)["records"] if "train/loss" in record]
    assert rates == pytest.approx([0.1 / (1 + 0.5 * step) for step in range(5)], rel=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.floats(0, 100), st.floats(0.01, 100), st.floats(0.1, 20), st.floats(0, 50))
def test_factors_stay_between_zero_and_the_larger_of_one_and_peak(epoch, total, peak, warmup):
    epoch = min(epoch, total)
    assert ConstantRate().factor(epoch, total) == 1.0
    for schedule in (Cosine(peak=peak, warmup_epochs=warmup), WarmupStep(peak=peak, warmup_epochs=warmup)):
        assert 0 <= schedule.factor(epoch, total) <= max(1.0, peak) + 1e-9
    assert 0 <= Linear(warmup_epochs=warmup).factor(epoch, total) <= 1


def inverse(**changes: object) -> InversePower:
    return InversePower(**{"decay": 1.0, "exponent": 1.0, "warmup": 0, "unit": "step"} | changes)


@pytest.mark.parametrize(
    ("kind", "key", "values", "rule"),
    [
        *((kind, "peak", (0, math.nan, "16", None), "be > 0") for kind in (WarmupStep, Cosine)),
        *((kind, "warmup_epochs", (-0.1, math.inf, None), "be >= 0") for kind in (WarmupStep, Cosine)),
        (WarmupStep, "decay", (0, math.nan, True), "be > 0"),
        (WarmupStep, "milestones", ([250, 150], [-1, 5], [None], "15"), "be epochs >= 0 in rising order"),
        (Linear, "warmup_share", (-0.1, 1, math.nan, None), r"be in \[0, 1\)"),
        (Linear, "warmup_epochs", (-1, "5"), "be >= 0 or null"),
        *((inverse, key, (0, math.inf, True), "be > 0") for key in ("decay", "exponent")),
        (inverse, "warmup", (-1,), "be >= 0"),
        (inverse, "unit", ("hour",), "be step or epoch"),
    ],
)
def test_bad_settings_are_refused(kind: Callable, key: str, values: tuple, rule: str) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"\w+\.{key} must {rule}, got"):
            kind(**{key: value})
