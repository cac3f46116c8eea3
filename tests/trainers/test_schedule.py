"""Learning-rate factors, compared with hand-computed numbers."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resuming import config_of, train

from trainers.schedules.learning_rate import rates_of_epochs
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


def test_a_milestone_is_reached_at_its_step_for_any_number_of_steps() -> None:
    """Also at 49 steps an epoch, where 49 * (1 / 49) is below 1."""
    schedule = WarmupStep(milestones=[1, 2], decay=0.1)
    for steps in range(1, 500):
        rates = rates_of_epochs(schedule, 3 * steps, 1 / steps)
        assert rates == pytest.approx([1, 0.1, 0.01]), steps


BY_HAND = {  # schedule, epochs of the run, and factors at some epochs
    "of the paper": (
        PAPER,
        300,
        {0: 1.0, 1 / 98: 1 + 15 / 5 / 98, 3: 10.0, 5: 16.0, 149.999: 16.0, 150: 1.6, 250: 0.16},
    ),
    "without warm-up": (
        WarmupStep(peak=3.0, milestones=[2], decay=0.5),
        4,
        {0: 3.0, 1.9: 3.0, 2: 1.5, 3: 1.5},
    ),
    "milestones at 0 and within the warm-up": (
        WarmupStep(peak=5.0, warmup_epochs=4, milestones=(0, 2), decay=0.5),
        9,
        {0: 0.5, 1: 1.0, 2: 0.75, 4: 1.25},
    ),
    "half a cosine after a warm-up": (
        Cosine(peak=2.0, warmup_epochs=10),
        110,
        {0: 1.0, 5: 1.5, 35: 1 + math.sqrt(0.5), 60: 1.0, 110: 0.0},
    ),
    "as BERT is fine-tuned": (  # the rate rises in the first tenth and falls in the rest
        Linear(),
        3,
        {0: 0.0, 0.1: 1 / 3, 0.3: 1.0, 0.57: 0.9, 1.65: 0.5, 3: 0.0, 3.1: 0.0},
    ),
    "linear, warm-up in epochs": (
        Linear(warmup_epochs=2, warmup_share=0.5),
        10,
        {0: 0.0, 1: 0.5, 2: 1.0, 6: 0.5, 10: 0.0},
    ),
    "linear, longer warm-up than the run": (Linear(warmup_epochs=5), 3, {2: 0.4}),
    "inverse of the step": (
        InversePower(decay=0.01, exponent=1.0, warmup=0, unit="step"),
        7,
        {0: 1, 100: 1 / 2, 400: 1 / 5, 10_000: 1 / 101},
    ),
    "inverse root of the step": (
        InversePower(decay=0.01, exponent=0.5, warmup=0, unit="step"),
        7,
        {0: 1, 100: math.sqrt(1 / 2), 10_000: math.sqrt(1 / 101)},
    ),
}


@pytest.mark.parametrize(("schedule", "epochs", "factors"), BY_HAND.values(), ids=BY_HAND)
def test_by_hand(schedule: Any, epochs: int, factors: dict[float, float]) -> None:
    found = {epoch: schedule.factor(epoch, epochs) for epoch in factors}
    assert found == pytest.approx(factors, rel=1e-12, abs=1e-12)


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


def test_rates_at_the_starts_of_epochs() -> None:
    falling = WarmupStep(peak=2.0, warmup_epochs=2, milestones=[3])
    assert rates_of_epochs(falling, 10, 0.5) == pytest.approx([1.0, 1.5, 2.0, 0.2, 0.2])
    assert rates_of_epochs(falling, 7, 2 / 3) == pytest.approx([1.0, 1 + 2 / 3, 2.0, 0.2, 0.2])
    assert len(rates_of_epochs(Cosine(), 9, 1 / 3)) == 3
    assert rates_of_epochs(object(), 4, 0.5) == [1.0, 1.0]
