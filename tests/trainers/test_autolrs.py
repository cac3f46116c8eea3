"""AutoLRS: forecasts, proposals, plans; a quadratic with a known best rate; interruptions during trials."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from libsvm_files import write_rows
from resuming import assert_same, config_of, train
from searching import best_rate, find_rate, settings

from trainers.checkpoint.saving import Checkpoints
from trainers.config.errors import ConfigError
from trainers.run import session, training
from trainers.run.folder import RunFolder
from trainers.schedules.autolrs import forecast, smooth


def decaying(scale: float, rate: float, offset: float, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    steps = np.arange(100)
    noise = noise * np.random.default_rng(seed).standard_normal(100)
    return scale * np.exp(-rate * steps) + offset + noise


@pytest.mark.parametrize(
    ("curve", "at_1000", "tolerance"),
    [
        (decaying(2, 0.05, 0.3), 0.3, 0.02),
        (decaying(2, 0.005, 0.3), 0.3 + 2 * math.exp(-5), 0.02),
        (decaying(3, 0.01, 0.0), 3 * math.exp(-10), 1e-2),
        (decaying(-1, 0.05, 4), 4, 0.02),  # a rising curve
        (decaying(2, 0.03, 0.3, noise=0.05), 0.3, 0.1),
    ],
)
def test_forecast(curve: np.ndarray, at_1000: float, tolerance: float) -> None:
    assert forecast(curve.tolist(), 1000) == pytest.approx(at_1000, abs=tolerance)


def test_forecast_of_what_diverged() -> None:
    grows = [2.0**step for step in range(30)]
    assert forecast(grows, 300) >= grows[-1]
    assert forecast([1.0, 2.0, math.inf], 10) == math.inf
    assert forecast([1.0, math.nan], 10) == math.inf


def test_outliers_are_trimmed() -> None:
    clean = decaying(2, 0.03, 0.3, noise=0.02)
    dirty = clean.copy()
    dirty[[20, 50, 51, 90]] += 10
    assert np.abs(smooth(dirty.tolist()) - smooth(clean.tolist())).max() < 0.1
    assert forecast(dirty.tolist(), 1000) == pytest.approx(forecast(clean.tolist(), 1000), abs=0.1)


def test_proposals_find_a_minimum() -> None:
    """The forecast is a parabola in the log rate, with its minimum at 0.3, and infinite above 2."""
    rates, forecasts = [], []
    for _ in range(10):
        rates.append(settings().propose(rates, forecasts, None))
        forecasts.append(math.inf if rates[-1] > 2 else 0.1 + 0.3 * math.log(rates[-1] / 0.3) ** 2)
    assert len(set(rates)) == 10 and all(1e-3 <= rate <= 10 for rate in rates)
    assert 0.2 < rates[int(np.argmin(forecasts))] < 0.45


def test_proposals_go_on_where_all_diverged() -> None:
    rates = [0.1]
    for _ in range(5):
        rates.append(settings().propose(rates, [math.inf] * len(rates), None))
    assert len(set(rates)) == 6


@pytest.mark.parametrize(
    ("stage", "left", "planned"),
    [
        (0, 10_000, (100, 10)),
        (3, 10_000, (800, 80)),
        (4, 10_000, (800, 80)),  # tau_max
        (0, 280, (180, 10)),  # too few steps are left for another stage with trials
        (0, 170, (90, 8)),
        (2, 90, (90, 0)),
    ],
)
def test_plan(stage: int, left: int, planned: tuple[int, int]) -> None:
    assert settings().plan(stage, left) == planned


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"low": 1.0, "high": 1.0}, "AutoLRS.high must be above AutoLRS.low"),
        ({"tau": 105}, "AutoLRS.tau must be a multiple of trial_steps"),
        ({"trial_steps": 4}, "AutoLRS.trial_steps must be an integer >= 5"),
    ],
)
def test_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        settings(**change)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("condition", "steps"),
    [(3, 50), *(pytest.param(*more, marks=SLOW) for more in ((3, 100), (3, 200), (10, 50), (10, 200)))],
)
def test_a_quadratic(condition: int, steps: int) -> None:
    """The rate found for f(x) = sum of h_i x_i^2 / 2 is within a factor of 1.5 of the best constant rate.

    Condition numbers are below 30: above, one exponential does not fit the loss after a tenth of the steps.
    """
    curvature = torch.logspace(0, math.log10(condition), 20, dtype=torch.float64)
    found, summary = find_rate(curvature, steps)
    best = best_rate(curvature, steps)
    assert best / 1.5 <= found <= best * 1.5
    assert summary["autolrs/search_steps"] <= steps  # trials that diverge are stopped


SMALL = (
    *("model=mlp", "data=digits", "compressor=top_k", "workers=4", "trainer.batch_size=8"),
    *("schedule=autolrs", "schedule.tau=10", "schedule.tau_max=20", "schedule.trial_steps=5"),
    *("schedule.trials=3", "trainer.steps=70", "trainer.evaluate_every=0.4", "checkpoint.every_minutes=null"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    threads = torch.get_num_threads()
    found = train(config_of(tmp_path_factory.mktemp("whole"), *SMALL))
    torch.set_num_threads(threads)
    return found


def test_steps_and_bytes_are_counted_apart(whole: dict[str, Any]) -> None:
    summary, records = whole["summary"], whole["records"]
    assert summary["step"] + summary["autolrs/search_steps"] == 70
    assert summary["autolrs/stages"] == 2 and summary["autolrs/search_steps"] == 3 * (5 + 9)
    per_step = summary["comm/bytes_sent_total"] / summary["step"]
    assert summary["autolrs/search_bytes_sent_total"] == pytest.approx(42 * per_step)
    assert summary["autolrs/search_total_error"] > 0
    steps = [record["step"] for record in records if "train/loss" in record]
    assert steps == list(range(1, 29))
    assert sum("autolrs/trial_2/rate" in record for record in records) == 2
    stages = [record for record in records if "autolrs/rate" in record]
    ends = [record for record in records if "autolrs/loss_at_end" in record]
    assert len(stages) == len(ends) == 2
    for stage, end in zip(stages, ends, strict=True):
        expected = stage["autolrs/forecast"] - end["autolrs/loss_at_end"]
        assert end["autolrs/forecast_error"] == pytest.approx(expected)
    rates = [record["train/learning_rate"] for record in records if "train/loss" in record]
    assert rates == pytest.approx([stages[0]["autolrs/rate"]] * 10 + [stages[1]["autolrs/rate"]] * 18)


@pytest.mark.parametrize(
    "steps_taken",
    [17, *(pytest.param(more, marks=SLOW) for more in (3, 8, 28, 44, 61))],  # within trials and between them
)
def test_an_interruption_in_the_middle_of_a_search(
    tmp_path: Path, whole: dict[str, Any], steps_taken: int
) -> None:
    """A checkpoint after ``steps_taken`` steps, including those of trials; a crash two steps later."""
    config = config_of(tmp_path, *SMALL)
    taken = 0
    after_step = Checkpoints.after_step

    class Crash(Exception):
        pass

    def counting(self: Checkpoints, state: Any, snapshot: Any = None) -> None:
        nonlocal taken
        taken += 1
        after_step(self, state, snapshot)
        if taken == steps_taken:
            self.save(snapshot or state.capture())
            self.wait()
        if taken == steps_taken + 2:
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "after_step", counting)
        with pytest.raises(Crash):
            training.train(config)
    assert RunFolder(config).checkpoints.exists()
    threads = torch.get_num_threads()
    assert_same(whole, train(config))
    torch.set_num_threads(threads)


def test_another_batch_size_begins_a_stage(tmp_path: Path) -> None:
    """The length of the last stage was in steps of the old batch size."""
    epochs = [word for word in SMALL if not word.startswith(("trainer.steps", "trainer.batch_size"))]
    short = config_of(tmp_path, *epochs, "trainer.batch_size=8", "trainer.epochs=2")
    train(short)
    sized = (*epochs, "trainer.batch_size=4", "trainer.epochs=6", f"resume={RunFolder(short).path}")
    found = train(config_of(tmp_path, *sized))["records"]
    last_step = max(row["step"] for row in found if "train/loss" in row)
    stages = [row for row in found if "autolrs/rate" in row]
    assert stages[-1]["step"] + stages[-1]["autolrs/stage_steps"] == last_step


def test_step_units_and_a_rate_that_diverges(tmp_path: Path) -> None:
    """On a convex problem in float64; some trials diverge."""
    write_rows(tmp_path, "rows", 60, 10)
    settings = (
        *("experiment=convex/madelon_sgd", "data.name=rows", f"data.root={tmp_path}", "workers=4"),
        *("schedule=autolrs", "schedule.low=1e-3", "schedule.high=1e38", "schedule.tau=40"),
        *(
            "schedule.tau_max=40",
            "schedule.trial_steps=20",
            "trainer.steps=300",
            "trainer.log_every=1",
            "model.l2=0.1",
        ),
    )
    found = train(config_of(tmp_path, *settings))
    trials = [r for r in found["records"] if any(name.startswith("autolrs/trial_") for name in r)]
    assert any(len(record) == 3 for record in trials)  # step, epoch and a rate, but no forecast
    assert any(len(record) == 4 for record in trials)
    assert found["summary"]["autolrs/stages"] >= 1 and found["summary"]["train/loss"] < 10


def test_a_missing_validation_split(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this dataset has no validation split"):
        session.run(config_of(tmp_path, *SMALL, "schedule.validation_from=10"))
    with pytest.raises(ConfigError, match=r"needs at least 25 steps, for 3 trials .*, got 20$"):
        session.run(config_of(tmp_path, *SMALL, "trainer.steps=20"))
    assert not list(tmp_path.iterdir())


def test_validation_loss(tmp_path: Path) -> None:
    """Trials of the second stage are compared by the validation loss."""
    text = (
        *("model=lstm", "model.width=8", "model.layers=1", "data=python_docs", "data.vocabulary_size=50"),
        *("data.evaluation_columns=64", "data.evaluation_tokens=300", "schedule=autolrs", "schedule.tau=10"),
        *("schedule.tau_max=20", "schedule.trial_steps=5", "schedule.trials=2", "trainer.steps=60"),
        *("trainer.evaluate_every=100", "workers=2", "schedule.validation_from=10"),
    )
    found = train(config_of(tmp_path, *text))
    ends = [r for r in found["records"] if "autolrs/loss_at_end" in r]
    assert ends[-1]["autolrs/loss_at_end"] == pytest.approx(found["summary"]["validation/loss"], rel=1e-6)
    assert ends[0]["autolrs/loss_at_end"] != pytest.approx(found["summary"]["validation/loss"], rel=1e-3)
