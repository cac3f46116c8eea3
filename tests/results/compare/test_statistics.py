"""Means, intervals and paired differences, compared with hand-computed numbers and scipy's tests."""

import gc
import math
import random

import numpy as np
import pytest
from scipy import stats

from results.compare.statistics import (
    Difference,
    findings,
    holm,
    mean_and_interval,
    paired_difference,
    quantile,
    standard_deviation,
)


def test_interval_by_hand() -> None:
    mean, half = mean_and_interval([1.0, 2.0, 3.0])  # s = 1, t = 4.302653 with 2 degrees of freedom
    assert mean == 2.0
    assert half == pytest.approx(4.302652729911275 / math.sqrt(3))


def test_quantile_is_that_of_printed_tables() -> None:
    assert [round(quantile(n), 3) for n in (1, 2, 4, 9)] == [12.706, 4.303, 2.776, 2.262]


def test_fewer_than_three_values_have_no_interval_and_none_is_refused() -> None:
    assert mean_and_interval([0.25]) == (0.25, None)
    assert mean_and_interval([0.25, 0.75]) == (0.5, None)
    assert standard_deviation([0.25, 0.75]) is None
    assert paired_difference([3.0], [1.0]) == (2.0, None, None, 1)
    assert paired_difference([3.0, 4.0], [1.0, 1.0]) == (2.5, None, None, 2)
    with pytest.raises(ValueError, match="at least one value"):
        mean_and_interval([])
    with pytest.raises(ValueError, match="got 2 and 1"):
        paired_difference([1.0, 2.0], [1.0])


def test_paired_difference_is_scipys() -> None:
    rng = np.random.default_rng(0)
    seeds = rng.normal(size=6) * 10  # common to a and b, and larger than their difference
    a, b = seeds + rng.normal(size=6), seeds + rng.normal(size=6) + 1
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    mean, low, high, seeds = paired_difference(list(a), list(b))
    assert seeds == 6
    assert mean == pytest.approx(np.mean(a - b))
    assert (low, high) == pytest.approx((interval.low, interval.high))
    assert high - low < 6


def test_interval_covers_the_truth_in_19_of_20_cases() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for draws in rng.normal(size=(2000, 3)):
        mean, half = mean_and_interval(list(draws))
        covered += abs(mean) <= half
    assert covered / 2000 == pytest.approx(0.95, abs=0.02)


def test_a_diverged_seed_is_not_hidden() -> None:
    mean, half = mean_and_interval([1.0, math.nan, 2.0])
    assert math.isnan(mean) and math.isnan(half)
    mean, half = mean_and_interval([1.0, math.inf, 2.0])
    assert mean == math.inf and math.isnan(half)


def paired(*differences: float) -> Difference:
    return paired_difference(differences, [0.0] * len(differences))


def test_p_values_are_scipys() -> None:
    values, margin = [0.3, 0.5, 0.9, 0.7], 1.0
    assert paired(*values).p == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    each = [
        stats.ttest_1samp(values, end, alternative=side).pvalue
        for end, side in ((-margin, "greater"), (margin, "less"))
    ]
    assert paired(*values).p_of_equivalence(margin) == pytest.approx(max(each))
    mirrored = paired(*(-value for value in values))
    assert mirrored.p_of_equivalence(margin) == pytest.approx(max(each))


def test_holm_by_hand() -> None:
    """4 x 0.01, 3 x 0.02, 2 x 0.025 raised to the one before, 0.9; what has no p-value is not counted."""
    assert holm([0.9, 0.01, None, 0.025, 0.02]) == pytest.approx([0.9, 0.04, None, 0.06, 0.06], nan_ok=True)
    assert holm([0.8, 0.7]) == [1.0, 1.0]
    assert holm([None]) == [None] and holm([]) == []


def test_a_difference_is_resolved_alone_or_together() -> None:
    clear, weak, none = paired(9.0, 9.1, 9.2), paired(6.7, 7.2, 9.2), paired(0.1, -0.1, 0.1)
    (alone,) = findings([(weak, None)])
    assert (alone.word(), alone.together) == ("higher", 1)
    assert findings([(weak, None)] * 6)[0].word() == "higher alone; not resolved for 6 together"
    found = findings([(clear, None), (weak, None), (none, 1.0), (paired(1.0, 2.0), 1.0)])
    assert [each.word() for each in found] == [
        "higher",
        "higher",
        "not resolved",
        "no verdict",
    ]
    assert [each.is_equivalent for each in found] == [False, False, True, False]
    assert findings([(paired(-9.0, -9.1, -9.2), None)])[0].word("above", "below") == "below"


def test_together_as_often_wrong_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four null comparisons of ten seeds: at most 5 % of experiments show a difference; unadjusted 18 %."""
    # statsmodels collects garbage in each call, which takes up to 0.3 s beside what other tests hold
    monkeypatch.setattr(gc, "collect", lambda: 0)
    draw = random.Random(0)
    wrong = alone = 0
    for _ in range(1000):
        experiment = [(paired(*(draw.gauss(0, 1) for _ in range(10))), None) for _ in range(4)]
        found = findings(experiment)
        wrong += any(each.word() == "higher" or each.word() == "lower" for each in found)
        alone += any(each.p is not None and each.p <= 0.05 for each, _ in experiment)
    assert wrong / 1000 < 0.065 and alone / 1000 > 0.12


def test_a_difference_of_the_margin_is_called_as_good_in_one_of_twenty_cases() -> None:
    rng = np.random.default_rng(2)
    p = [paired(*draws).p_of_equivalence(1.0) for draws in rng.normal(1.0, 0.2, size=(2000, 5))]
    assert np.mean([each <= 0.05 for each in p]) == pytest.approx(0.05, abs=0.015)


def test_a_diverged_seed_has_no_verdict() -> None:
    assert findings([(paired(1.0, math.nan, 2.0), 1.0)])[0].word() == "no verdict"


def test_logarithms_are_shown_as_ratios() -> None:
    found = paired(*(math.log(value) for value in (2.0, 4.0, 8.0)))
    assert found.shown_as_ratio() == "4 [0.715, 22.4]"
