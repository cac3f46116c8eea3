"""Learning-rate factors, compared with hand-computed numbers."""

import math
from pathlib import Path

import pytest
from configs import resolved
from hydra.utils import instantiate
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
        (1, 4.0),
        (2.5, 8.5),
        (3, 10.0),
        (4.99, 15.97),
        (5, 16.0),
        (5.01, 16.0),
        (149.999, 16.0),
        (150, 1.6),
        (200.5, 1.6),
        (249.999, 1.6),
        (250, 0.16),
        (299.999, 0.16),
    ],
)
def test_the_papers_schedule(epoch: float, expected: float) -> None:
    assert PAPER.factor(epoch, 300) == pytest.approx(expected, rel=1e-12)


def test_warmup_step_without_settings_is_constant() -> None:
    assert {WarmupStep().factor(epoch, 10) for epoch in (0, 0.5, 3, 10)} == {1.0}


def test_without_warmup_the_peak_holds_from_the_start() -> None:
    schedule = WarmupStep(peak=3.0, milestones=[2], decay=0.5)
    assert [schedule.factor(epoch, 4) for epoch in (0, 1.9, 2, 3)] == [3.0, 3.0, 1.5, 1.5]


def test_milestone_at_zero_and_within_the_warmup() -> None:
    schedule = WarmupStep(peak=5.0, warmup_epochs=4, milestones=(0, 2), decay=0.5)
    assert [schedule.factor(epoch, 9) for epoch in (0, 1, 2, 4)] == [0.5, 1.0, 0.75, 1.25]


def test_peak_below_one_warms_down() -> None:
    schedule = WarmupStep(peak=0.5, warmup_epochs=2)
    assert [schedule.factor(epoch, 9) for epoch in (0, 1, 2)] == [1.0, 0.75, 0.5]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, 1.0),
        (2.5, 1.25),
        (5, 1.5),
        (10, 2.0),
        (35, 1 + math.sqrt(0.5)),
        (60, 1.0),
        (85, 1 - math.sqrt(0.5)),
        (110, 0.0),
        (120, 0.0),
    ],
)
def test_cosine_after_a_warmup(epoch: float, expected: float) -> None:
    """Warm-up to 2 at epoch 10, then half a cosine over 100 epochs."""
    assert Cosine(peak=2.0, warmup_epochs=10).factor(epoch, 110) == pytest.approx(expected, abs=1e-12)


def test_cosine_without_settings() -> None:
    factors = [Cosine().factor(epoch, 6) for epoch in (0, 2, 3, 4, 6)]
    assert factors == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0], abs=1e-12)


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


def test_linear_without_warmup() -> None:
    for schedule in (Linear(warmup_share=0), Linear(warmup_epochs=0)):
        assert [schedule.factor(epoch, 4) for epoch in (0, 1, 4)] == [1.0, 0.75, 0.0]


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


def test_inverse_square_root_of_a_transformer() -> None:
    """min(t / w, sqrt(w / t)), w = 4000 steps of warm-up."""
    schedule = InversePower(decay=1 / 4000, exponent=0.5, warmup=4000, unit="step")
    for step in (0, 1, 3999, 4000, 4001, 16_000, 100_000):
        expected = min(step / 4000, math.sqrt(4000 / max(step, 1)))
        assert schedule.factor(step, 100_000) == pytest.approx(expected, rel=1e-12)


def test_the_decreasing_rates_on_the_command_line() -> None:
    config = resolved("schedule=inverse", "schedule.decay=0.25")["schedule"]
    assert instantiate(config) == InversePower(decay=0.25, exponent=1, warmup=0, unit="step")
    config = resolved("schedule=inverse_sqrt", "schedule.unit=epoch", "schedule.warmup=2")["schedule"]
    assert instantiate(config) == InversePower(decay=1e-3, exponent=0.5, warmup=2, unit="epoch")


def test_a_run_follows_a_decreasing_rate(tmp_path: Path) -> None:
    typed = ("model=mlp", "workers=2", "trainer.batch_size=8", "trainer.steps=5", "trainer.log_every=1")
    config = config_of(tmp_path, *typed, "schedule=inverse", "schedule.decay=0.5", "optimizer.lr=0.1")
    rates = [record["train/learning_rate"] for record in train(config)["records"] if "train/loss" in record]
    assert rates == pytest.approx([0.1 / (1 + 0.5 * step) for step in range(5)], rel=1e-12)


def test_a_run_shorter_than_the_warmup_never_leaves_it() -> None:
    for schedule in (Cosine(peak=6.0, warmup_epochs=5), WarmupStep(peak=6.0, warmup_epochs=5)):
        assert [schedule.factor(epoch, 3) for epoch in (0, 1, 2.5)] == [1.0, 2.0, 3.5]


@settings(deadline=None, max_examples=50)
@given(st.floats(0, 100), st.floats(0.01, 100), st.floats(0.1, 20), st.floats(0, 50))
def test_factors_stay_between_zero_and_the_larger_of_one_and_peak(epoch, total, peak, warmup):
    epoch = min(epoch, total)
    assert ConstantRate().factor(epoch, total) == 1.0
    for schedule in (Cosine(peak=peak, warmup_epochs=warmup), WarmupStep(peak=peak, warmup_epochs=warmup)):
        assert 0 <= schedule.factor(epoch, total) <= max(1.0, peak) + 1e-9
    assert 0 <= Linear(warmup_epochs=warmup).factor(epoch, total) <= 1


NOT_POSITIVE = [0, 0.0, -1, float("nan"), float("inf"), "16", None, True]


@pytest.mark.parametrize("kind", [WarmupStep, Cosine])
@pytest.mark.parametrize("peak", NOT_POSITIVE)
def test_bad_peak_is_refused(kind: type, peak) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.peak must be > 0, got"):
        kind(peak=peak)


@pytest.mark.parametrize("kind", [WarmupStep, Cosine])
@pytest.mark.parametrize("warmup_epochs", [-1, -0.1, float("nan"), float("inf"), "5", None, True])
def test_bad_warmup_is_refused(kind: type, warmup_epochs) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.warmup_epochs must be >= 0, got"):
        kind(warmup_epochs=warmup_epochs)


@pytest.mark.parametrize("decay", NOT_POSITIVE)
def test_bad_decay_is_refused(decay) -> None:
    with pytest.raises(ValueError, match=r"WarmupStep\.decay must be > 0, got"):
        WarmupStep(decay=decay)


@pytest.mark.parametrize(
    "milestones", [[250, 150], [150, 150], [-1, 5], [float("nan")], ["150"], [None], "15"]
)
def test_bad_milestones_are_refused(milestones) -> None:
    with pytest.raises(ValueError, match=r"WarmupStep\.milestones must be epochs >= 0 in rising order, got"):
        WarmupStep(milestones=milestones)


@pytest.mark.parametrize("name", ["decay", "exponent"])
@pytest.mark.parametrize("value", NOT_POSITIVE)
def test_bad_decreasing_rates_are_refused(name: str, value) -> None:
    settings = {"decay": 1.0, "exponent": 1.0, "warmup": 0, "unit": "step"}
    with pytest.raises(ValueError, match=rf"InversePower\.{name} must be > 0, got"):
        InversePower(**settings | {name: value})
    with pytest.raises(ValueError, match=r"InversePower\.warmup must be >= 0, got -1"):
        InversePower(**settings | {"warmup": -1})
    with pytest.raises(ValueError, match=r"InversePower\.unit must be step or epoch, got 'hour'"):
        InversePower(**settings | {"unit": "hour"})


@pytest.mark.parametrize("share", [-0.1, 1, 1.0, 2, float("nan"), "0.1", None, True])
def test_bad_warmup_share_is_refused(share) -> None:
    with pytest.raises(ValueError, match=r"Linear\.warmup_share must be in \[0, 1\), got"):
        Linear(warmup_share=share)


@pytest.mark.parametrize("epochs", [-1, float("inf"), "5", True])
def test_bad_linear_warmup_is_refused(epochs) -> None:
    with pytest.raises(ValueError, match=r"Linear\.warmup_epochs must be >= 0 or null, got"):
        Linear(warmup_epochs=epochs)
