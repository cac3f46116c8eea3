"""Rank correlations of the study of what predicts quality, and its page from few runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from results_commands import command_of_results
from run_folders import write_run
from scipy.stats import spearmanr

from results.compare.measures import LINK_BYTES
from results.read.folders import finished_runs
from results.read.run import Run
from results.studies.league.tasks import TASKS, TUNING_SEED
from results.studies.why import (
    FEWEST,
    Pair,
    alike_methods,
    at_equal_bytes,
    correlations,
    interval,
    shown,
    small_pairs,
    spearman,
)
from results.studies.why_measures import GAP, NOT_IN_LEAGUE, TOTAL, WAITED, WORST

SEEDS = range(TASKS["madelon"].seeds)
ERRORS = (5.0, 3.0, 4.0, 1.0, 2.0, 6.0)


def test_weights_repeat_entries() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 5, 12).astype(float), rng.normal(size=12)  # a has equal values
    weights = rng.integers(0, 4, (3, 12))
    for found, counts in zip(spearman(a, b, weights), weights, strict=True):
        assert found == pytest.approx(spearmanr(np.repeat(a, counts), np.repeat(b, counts)).statistic)


def test_equal_values_have_no_correlation() -> None:
    assert np.isnan(spearman(np.ones(4), np.arange(4.0), np.ones((1, 4)))).all()


def run(accuracy: float, error: float, **summary: Any) -> Run:
    layers = {
        "large": {"elements": 90, "total_error": 0.9 * error, "density_mean": 0.1},
        "small": {"elements": 10, "total_error": 0.1 * error, "density_mean": 0.2},
    }
    told = {"test/accuracy": accuracy, TOTAL.name: error, "layers": layers}
    told |= {"compression/error": 1.0, "compression/input_norm_squared": 2.0}
    config = {
        "optimizer": {"lr": 0.1},
        "seed": 0,
        "compressor": {"_target_": "compressors.top_k.TopK"},
        "feedback": {"_target_": "compressors.feedback.ErrorFeedback"},
    }
    return Run(Path(f"{accuracy}"), config, told | summary, pd.DataFrame())


def methods(errors: tuple[float, ...] = ERRORS) -> dict[str, list[Run]]:
    return {str(place): [run(1 - error / 10, error)] for place, error in enumerate(errors)}


@pytest.mark.parametrize(
    ("group", "target"),
    [
        ("feedback", "compressors.feedback.MomentumCorrection"),
        ("compressor", "compressors.signsgd.SignSGD"),
    ],
)
def test_a_mean_in_other_units_than_the_gradient_has_no_gap(group: str, target: str) -> None:
    one = run(0.9, 1.0)
    one.summary["diagnostics/gap"] = 7.0
    assert GAP.value(one) == 7.0
    one.config[group] = {"_target_": target}
    assert GAP.value(Run(one.path, one.config, one.summary, one.records)) is None


def test_a_measure_with_the_order_of_quality_has_a_correlation_of_one() -> None:
    by_label = {each.measure.label: each for each in correlations([("cifar10", methods())])}
    total = by_label[TOTAL.label]
    assert (total.mean, total.of_tasks, total.methods, total.runs) == (-1, {"cifar10": -1}, 6, 6)
    assert (total.error, total.gain) == (pytest.approx(0), 0)
    assert by_label[WORST.label].mean == -1
    assert "gap" not in by_label and "average density" not in by_label  # no run has it; it is the same in all


def test_shares_of_the_norm_and_means_over_steps_need_runs_that_have_them() -> None:
    measures = {measure.name: measure for measure in NOT_IN_LEAGUE}
    earlier = run(0.9, 2.0)
    assert not any(measure.values([earlier]) for measure in NOT_IN_LEAGUE)
    for name, norm in (("large", 3.6), ("small", 0.25)):
        earlier.summary["layers"][name]["total_input_norm_squared"] = norm
    later = replace(earlier, records=pd.DataFrame({"step": [1, 2, 3], WAITED.name: [4.0, np.nan, 6.0]}))
    assert measures["sent_least"].value(later) == pytest.approx(1 - 0.2 / 0.25)
    assert measures["sent_mean"].value(later) == pytest.approx(1 - (1.8 / 3.6 + 0.2 / 0.25) / 2)
    assert WAITED.value(later) == 5
    later.summary["layers"]["small"]["total_input_norm_squared"] = 0.0  # a layer without gradients
    assert measures["sent_least"].value(later) == pytest.approx(1 - 1.8 / 3.6)


def small(compressor: str, sent: float, beta: float | None = None, scope: str = "layer") -> dict[Any, Any]:
    one = run(0.9, 1.0, **{LINK_BYTES: sent})
    one.config["feedback"] = {"_target_": "compressors.feedback.ErrorFeedback"} | (
        {"beta": beta} if beta is not None else {}
    )
    return {("sgd", compressor, scope): {0: one}}


def test_methods_of_the_small_training_have_all_of_the_residual_and_top_ks_bytes() -> None:
    runs = small("top_k", 4e3) | small("top_k", 4.1e3, scope="global") | small("none", 4e5)
    runs |= small("sidco", 3e3) | small("gaussian_k", 6e3) | small("clt_k", 4e3, beta=0.1)
    runs |= {("adam", *key[1:]): own for key, own in small("sidco", 4e3).items()}  # without Top-k
    assert [(task, list(methods)) for task, methods in alike_methods(runs)] == [
        ("sgd", ["Top-k", "Top-k, whole model", "sidco"])
    ]
    assert [(pair.label, pair.top_k) for pair in small_pairs(runs)] == [("Top-k, whole model", "Top-k")]


def test_few_methods_are_no_comparison() -> None:
    other = [("wikitext2", methods(ERRORS[: FEWEST - 1])), ("cifar10", methods())]
    assert list(correlations(other)[0].of_tasks) == ["cifar10"]


def test_the_methods_are_drawn_and_not_their_comparisons() -> None:
    """Budgets of the same methods with the same order give no more information than one of them."""
    other = methods() | {"0": [run(0.9, 5.0)], "3": [run(0.1, 1.0)]}
    once, thrice = (correlations([("cifar10", other)] * times)[0] for times in (1, 3))
    assert once.error > 0.1 and thrice.error == pytest.approx(once.error)


def test_a_table_names_what_its_adjusted_p_values_show() -> None:
    found = correlations([("cifar10", methods())])
    table = [
        found[0]._replace(mean=-0.4, error=error, gain=0.1, gain_error=1.0) for error in (0.1, 0.19, 0.5)
    ]
    assert interval(-0.4, 0.19)[1] < 0  # alone, the second is shown too
    assert shown(table, "mean") == shown(table, "mean", -1) == [TOTAL.label]
    assert shown(table, "mean", 1) == shown(table, "gain") == []


def test_less_of_a_measure_and_more_accuracy_agree() -> None:
    pair = Pair("main", "threshold", {0: run(0.9, 2.0)}, "Top-k", {0: run(0.8, 3.0)})
    assert pair.ratio(TOTAL) == pytest.approx(2 / 3)
    assert pair.agrees(TOTAL) and not pair._replace(own={0: run(0.7, 2.0)}).agrees(TOTAL)


def write_league(folder: Path, method: str, seed: int, sent: float, density: float = 0.01) -> None:
    share = None if method == "none" else 20
    budget = {"method": method, "share": share, "knob": share and f"budget.density={density}"}
    told = {LINK_BYTES: sent, "convex/suboptimality": sent}
    name = f"league_madelon-{method}"
    own = {"optimizer": {"lr": 1e-8}, "budget": budget, "summary": told}
    own |= {"settings": {"density": density}} if share else {}
    write_run(folder, name=name, compressor=method, seed=seed, **own)


def test_methods_with_other_bytes_are_not_compared(tmp_path: Path) -> None:
    for seed in SEEDS:
        write_league(tmp_path, "none", seed, 1e8)
        write_league(tmp_path, "top_k", seed, 5.1e6)
        write_league(tmp_path, "random_k", seed, 3e6)  # meets the budget of 5e6 and is far from it
    for density, sent in ((0.02, 4e6), (0.03, 4.5e6), (0.04, 7e6)):
        write_league(tmp_path, "top_k", TUNING_SEED, sent, density)
    compared, one_rate = at_equal_bytes(finished_runs([tmp_path], warn=False))
    (_, at_20), *others = compared
    assert list(at_20) == ["top_k"] and len(at_20["top_k"]) == len(SEEDS)
    assert not any(methods for _, methods in others)
    assert [run.summary[LINK_BYTES] for _, methods in one_rate for run in methods.get("top_k", [])] == [4.5e6]


def test_runs_of_one_study_alone_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_league(tmp_path, "none", 0, 1e8)
    assert command_of_results("study", "why")([str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("got none named cifar10_..., why_...")
